#include "data/documents/document_maker.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/chat/token_mask.h"

namespace spillway::data {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("[data] {}: {}", where, what));
}

bool is_assistant(const Json& message) { return message.value("role", "") == "assistant"; }

}  // namespace

DocumentMaker::DocumentMaker(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat,
                             std::shared_ptr<const Json> variables, const DocumentOptions& options)
    : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)), variables_(std::move(variables)), options_(options) {}
DocumentMaker::~DocumentMaker() = default;

Document DocumentMaker::of_text(const std::string& text) const {
  Document document{tokenizer_->encode(text), {}};
  if (options_.end_token) document.ids.push_back(*options_.end_token);
  document.counted.assign(document.ids.size(), 1);
  return document;
}

Document DocumentMaker::of_completion(const Row& row) const {
  Document document{tokenizer_->encode(row.prompt), {}};
  document.counted.assign(document.ids.size(), options_.loss_on == LossOn::all);
  const std::vector<i32> completion = tokenizer_->encode(row.completion);
  document.ids.insert(document.ids.end(), completion.begin(), completion.end());
  if (options_.end_token) document.ids.push_back(*options_.end_token);
  document.counted.resize(document.ids.size(), 1);
  return document;
}

Document DocumentMaker::of_tokens(const Row& row) const {
  Document document{row.ids, row.counted};
  if (options_.loss_on == LossOn::all) document.counted.assign(document.ids.size(), 1);
  return document;
}

std::vector<ByteRange> DocumentMaker::answers(const Json& messages, const std::string& text, const std::string& where) const {
  std::vector<ByteRange> found;
  Json before = Json::array();
  for (const Json& message : messages) {
    if (is_assistant(message)) {
      // A conversation that begins with the assistant has nothing before it to render.
      const std::string prompt = before.empty() ? "" : chat_->render(before, *variables_, true).text;
      Json with = before;
      with.push_back(message);
      const std::string answered = chat_->render(with, *variables_, false).text;
      if (!answered.starts_with(prompt) || !text.starts_with(answered)) {
        refuse(where,
               fmt::format("expected a chat template whose conversations grow by what is added, or one with generation blocks, got {}, "
                           "where message {} changes what came before: give --loss-on all, or another --chat-template",
                           chat_->name(), before.size() + 1));
      }
      found.push_back({static_cast<i64>(prompt.size()), static_cast<i64>(answered.size())});
    }
    before.push_back(message);
  }
  return found;
}

Document DocumentMaker::of_messages(const Row& row, const std::string& where) const {
  if (!chat_) refuse(where, "expected a chat template for conversations, got none beside the model: give --chat-template FILE");
  ChatTemplate::Rendered rendered;
  Encoded encoded;
  try {
    rendered = chat_->render(*row.messages, *variables_, false);
    encoded = tokenizer_->encode_with_ranges(rendered.text);
    if (options_.loss_on == LossOn::all) {
      Document document{std::move(encoded.ids), {}};
      document.counted.assign(document.ids.size(), 1);
      return document;
    }
    if (!rendered.has_generation_blocks) rendered.assistant = answers(*row.messages, rendered.text, where);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::data || std::string_view(e.what()).starts_with("[data]")) throw;
    refuse(where, e.what());
  }
  return {std::move(encoded.ids), mask_of_spans(encoded.ranges, rendered.assistant)};
}

Document DocumentMaker::make(std::string_view line, const std::string& file, i64 line_number) const {
  const Row row = parse_row(line, options_.layout, file, line_number);
  const std::string where = fmt::format("{}, line {}", file, line_number);
  const bool conversation = row.messages != nullptr, text = row.layout == RowLayout::text, tokens = row.layout == RowLayout::tokens;
  if (options_.loss_on == LossOn::completion && (conversation || text || tokens))
    refuse(where, "expected a prompt with a completion for --loss-on completion, got another layout");
  if (options_.loss_on == LossOn::assistant && !conversation)
    refuse(where, "expected a conversation for --loss-on assistant, got another layout");
  if (conversation) return of_messages(row, where);
  if (tokens) return of_tokens(row);
  return text ? of_text(row.text) : of_completion(row);
}

}  // namespace spillway::data
