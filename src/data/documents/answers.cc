#include "data/documents/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace spillway::data {
namespace {

using Json = nlohmann::ordered_json;

bool is_assistant(const Json& message) { return message.value("role", "") == "assistant"; }

bool is_left_out(const Row& row, size_t message) { return !row.left_out.empty() && row.left_out[message] != 0; }

// Returns the bytes of the rendered text that the message with index `m` adds. The text of the conversation before
// that message, rendered with the generation prompt, comes first; the bytes after it belong to the message.
ByteRange added_by(size_t m, const ChatTemplate& chat, const Json& variables, const Row& row, const std::string& text,
                   const std::string& where) {
  Json with = Json::array();
  for (size_t i = 0; i < m; ++i) with.push_back((*row.messages)[i]);
  // Before the first message there is no conversation, so nothing is rendered for it.
  const std::string prompt = m == 0 ? "" : chat.render(with, variables, true).text;
  with.push_back((*row.messages)[m]);
  const std::string answered = chat.render(with, variables, false).text;
  if (!answered.starts_with(prompt) || !text.starts_with(answered)) {
    throw Error(ErrorCode::data,
                fmt::format("[data] {}: expected a chat template that only appends text for each message, or one with generation blocks, "
                            "got {}, in which message {} changes the text before it: give --loss-on all, or another --chat-template",
                            where, chat.name(), m + 1));
  }
  return {static_cast<i64>(prompt.size()), static_cast<i64>(answered.size())};
}

}  // namespace

std::vector<ByteRange> answers_in(const ChatTemplate& chat, const Json& variables, const Row& row, const ChatTemplate::Rendered& rendered,
                                  const std::string& where) {
  const bool blocks = rendered.has_generation_blocks;
  if (blocks && row.left_out.empty()) return rendered.assistant;
  std::vector<size_t> said;
  for (size_t m = 0; m < row.messages->size(); ++m) {
    if (is_assistant((*row.messages)[m])) said.push_back(m);
  }
  std::vector<ByteRange> found, out;
  if (blocks && said.size() == rendered.assistant.size()) {  // true if each assistant message has one generation block
    for (size_t i = 0; i < said.size(); ++i) {
      if (!is_left_out(row, said[i])) found.push_back(rendered.assistant[i]);
    }
    return found;
  }
  for (const size_t m : said) {
    if (blocks == is_left_out(row, m)) (blocks ? out : found).push_back(added_by(m, chat, variables, row, rendered.text, where));
  }
  if (!blocks) return found;
  for (const ByteRange& block : rendered.assistant) {
    const bool covered = std::ranges::any_of(out, [&](const ByteRange& o) { return block.begin < o.end && o.begin < block.end; });
    if (!covered) found.push_back(block);
  }
  return found;
}

}  // namespace spillway::data
