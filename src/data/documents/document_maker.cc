#include "data/documents/document_maker.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/documents/answers.h"
#include "data/template/token_mask.h"

namespace spillway::data {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("[data] {}: {}", where, what));
}

// Returns the text that the tokenizer encodes as the single token `id`, or "" if there is no such text.
std::string text_of(const Tokenizer& tokenizer, std::optional<i32> id) {
  const std::string text = id ? tokenizer.token(*id) : "";
  return tokenizer.encode(text) == std::vector{id.value_or(0)} ? text : "";
}

}  // namespace

DocumentMaker::DocumentMaker(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat,
                             std::shared_ptr<const Json> variables, const DocumentOptions& options)
    : tokenizer_(std::move(tokenizer)),
      chat_(std::move(chat)),
      variables_(std::move(variables)),
      options_(options),
      end_text_(text_of(*tokenizer_, options_.end_token)) {}
DocumentMaker::~DocumentMaker() = default;

Around DocumentMaker::around_texts() const {
  Document empty;
  put_around(empty);
  const size_t before = tokenizer_->around().before.size();
  return {{empty.ids.begin(), empty.ids.begin() + static_cast<i64>(before)},
          {empty.ids.begin() + static_cast<i64>(before), empty.ids.end()}};
}

// Appends the end token, unless the document already ends with an end token that is a target. Then adds the
// tokens that the tokenizer puts around a text: some at the beginning of the document, some after the end token.
void DocumentMaker::put_around(Document& document) const {
  const auto put = [&](std::vector<i32>::iterator at, std::span<const i32> ids, u8 counted) {
    document.counted.insert(document.counted.begin() + (at - document.ids.begin()), ids.size(), counted);
    document.ids.insert(at, ids.begin(), ids.end());
  };
  const std::span<const i32> before = missing_before(tokenizer_->around(), document.ids);
  const auto end = options_.end_token;
  const bool ended = !document.ids.empty() && document.ids.back() == end && document.counted.back() != 0;
  if (end && !ended) put(document.ids.end(), std::span(&*end, 1), 1);
  put(document.ids.end(), missing_behind(tokenizer_->around(), document.ids), 1);
  put(document.ids.begin(), before, options_.loss_on == LossOn::all);
}

Document DocumentMaker::of_text(const std::string& text) const {
  Document document{tokenizer_->encode(text), {}};
  document.counted.assign(document.ids.size(), 1);
  put_around(document);
  document.counted.assign(document.ids.size(), 1);
  return document;
}

Document DocumentMaker::of_completion(const Row& row) const {
  std::string text;
  std::vector<ByteRange> counted;
  const auto add = [&](const std::string& prompt, const std::string& completion) {
    text += prompt;
    counted.push_back({std::ssize(text), std::ssize(text) + std::ssize(completion)});
    text += completion;
  };
  for (const Exchange& exchange : row.history) add(exchange.prompt, exchange.completion + end_text_);
  add(row.prompt, row.completion);
  Encoded encoded = tokenizer_->encode_with_ranges(text);
  Document document{std::move(encoded.ids), mask_of_spans(encoded.ranges, counted)};
  if (options_.loss_on == LossOn::all) document.counted.assign(document.ids.size(), 1);
  put_around(document);
  return document;
}

Document DocumentMaker::of_tokens(const Row& row) const {
  Document document{row.ids, row.counted, row.begins};
  if (options_.loss_on == LossOn::all) document.counted.assign(document.ids.size(), 1);
  for (const u32 begin : row.begins) document.counted[begin] = 0;
  return document;
}

Document DocumentMaker::of_messages(const Row& row, const std::string& where) const {
  if (!chat_) refuse(where, "expected a chat template for conversations, got none in the model's folder: give --chat-template FILE");
  try {
    const Json variables = with_variables(*variables_, row);
    const ChatTemplate::Rendered rendered = chat_->render(*row.messages, variables, false);
    Encoded encoded = tokenizer_->encode_with_ranges(rendered.text);
    if (options_.loss_on == LossOn::all) {
      const size_t tokens = encoded.ids.size();
      return {std::move(encoded.ids), std::vector<u8>(tokens, 1)};
    }
    return {std::move(encoded.ids), mask_of_spans(encoded.ranges, answers_in(*chat_, variables, row, rendered, where))};
  } catch (const Error& e) {
    if (e.code() != ErrorCode::data || std::string_view(e.what()).starts_with("[data]")) throw;
    refuse(where, e.what());
  }
}

Document DocumentMaker::make(std::string_view line, const std::string& file, i64 line_number) const {
  Row row = parse_row(line, options_.layout, file, line_number);
  const std::string where = fmt::format("{}, line {}", file, line_number);
  const bool conversation = row.messages != nullptr, text = row.layout == RowLayout::text, tokens = row.layout == RowLayout::tokens;
  if (options_.loss_on == LossOn::completion && (conversation || text || tokens))
    refuse(where, "expected a prompt with a completion for --loss-on completion, got a row of another layout");
  if (options_.loss_on == LossOn::assistant && !conversation)
    refuse(where, "expected a conversation for --loss-on assistant, got a row of another layout");
  Document document = conversation ? of_messages(row, where) : tokens ? of_tokens(row) : text ? of_text(row.text) : of_completion(row);
  document.unread = std::move(row.unread);
  return document;
}

}  // namespace spillway::data
