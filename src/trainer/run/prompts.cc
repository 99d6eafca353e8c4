#include "trainer/run/prompts.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "data/documents/line_reader.h"
#include "data/rows/row.h"
#include "data/template/find_chat_template.h"
#include "trainer/run/data_sources.h"
#include "trainer/text/generation.h"

namespace spillway::trainer {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool has(const Json& json, const char* key) { return json.is_object() && json.contains(key); }

}  // namespace

Conversations::Conversations(const WritingConfig& config, const ModelSource& source, std::shared_ptr<const data::Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {
  auto place = tokenizer_place(config, source);
  if (place && !std::filesystem::is_directory(*place)) place = place->parent_path();
  auto found = chat_template_of(config.chat_template, place ? place : source.folder);
  if (!found) {
    throw Error(ErrorCode::usage, fmt::format("[chat] expected a chat template (chat_template.jinja) in {}, got none: give --chat-template "
                                              "FILE, or use `spillway generate` with plain prompts",
                                              (place ? *place : *source.folder).string()));
  }
  template_ = std::make_shared<const data::ChatTemplate>(std::move(*found));
  variables_ = std::make_shared<const Json>(place ? data::special_token_variables(*place) : Json::object());
}

std::vector<i32> Conversations::tokens(const Json& messages) const {
  return tokenizer_->encode(template_->render(messages, *variables_, true).text);
}

std::vector<i32> Conversations::tokens(const data::Row& row) const {
  return tokenizer_->encode(template_->render(*row.messages, data::with_variables(*variables_, row), true).text);
}

PromptFile read_prompts(const std::string& path, const WritingConfig& config, const ModelSource& source,
                        const std::shared_ptr<const data::Tokenizer>& tokenizer) {
  std::optional<Conversations> conversations;
  PromptFile file;
  std::map<std::string, i64> unread;
  const bool rows = data::is_json_lines(path);
  data::LineReader lines(path, data::kMostRowBytes);
  for (std::string line; lines.next(line);) {
    const auto where = [&] { return fmt::format("[prompts] {}, line {}:", path, lines.number()); };
    const Json json = rows ? parse_ordered_json(line) : Json();
    if (!rows) {
      file.prompts.push_back({line, data::encode_with_around(*tokenizer, line)});
    } else if (has(json, "messages")) {
      const auto row = data::parse_row(line, data::RowLayout::messages, path, lines.number());
      if (!conversations) conversations.emplace(config, source, tokenizer);
      file.prompts.push_back({dumped(*row.messages), conversations->tokens(row)});
      for (const std::string& key : row.unread) ++unread[key];
    } else if (has(json, "prompt") && json["prompt"].is_string()) {
      const std::string text = json["prompt"].get<std::string>();
      file.prompts.push_back({text, data::encode_with_around(*tokenizer, text)});
      for (const auto& [key, value] : json.items()) unread[key] += key != "prompt" && !value.is_null();
    } else {
      throw Error(ErrorCode::data, fmt::format("{} expected {{\"prompt\": TEXT}} or {{\"messages\": […]}}, got {}", where(),
                                               json.is_discarded() ? "text that is not JSON" : "other JSON"));
    }
    check_prompt(file.prompts.back().tokens, source.config.vocabulary, where());
  }
  if (file.prompts.empty()) throw Error(ErrorCode::data, fmt::format("[prompts] expected one prompt per line in {}, got no prompts", path));
  file.notes = unread_notes(path, unread);
  return file;
}

}  // namespace spillway::trainer
