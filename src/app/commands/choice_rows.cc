#include "app/commands/choice_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "data/documents/line_reader.h"
#include "data/documents/prepare.h"
#include "trainer/run/data_sources.h"
#include "trainer/text/generation.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

struct Texts {
  std::string prompt;
  std::vector<std::string> choices;
  size_t answer = 0;
  std::vector<std::string> unread;
};

// Parses a row into its texts. Throws Error(data), whose message begins with `where` and says what was expected and found.
Texts texts_of(const std::string& line, const std::string& where) {
  const auto complain = [&](const std::string& expected) { throw Error(ErrorCode::data, where + " expected " + expected); };
  const Json json = parse_ordered_json(line);
  if (json.is_discarded() || !json.is_object())
    complain(R"({"prompt": TEXT, "choices": [TEXT, …], "answer": NUMBER or TEXT}, got no JSON object)");
  const auto text = [&](const Json& value, const std::string& what) {
    if (!value.is_string()) complain(fmt::format("{} to be text, got {}", what, value.type_name()));
    return value.get<std::string>();
  };
  for (const char* key : {"prompt", "choices", "answer"}) {
    if (!json.contains(key)) complain(fmt::format("the key `{}`, got none", key));
  }
  Texts row{text(json["prompt"], "`prompt`"), {}, 0, {}};
  for (const auto& [key, value] : json.items()) {
    if (key != "prompt" && key != "choices" && key != "answer" && !value.is_null()) row.unread.push_back(key);
  }
  if (!json["choices"].is_array() || json["choices"].size() < 2) complain("`choices` to be a list of at least two texts");
  for (const Json& choice : json["choices"]) {
    row.choices.push_back(text(choice, "each of `choices`"));
    if (row.choices.back().empty()) complain("each of `choices` to be a text that is not empty, got an empty one");
  }
  const Json& answer = json["answer"];
  if (answer.is_string()) {
    const auto found = std::ranges::find(row.choices, answer.get<std::string>());
    if (found == row.choices.end()) complain("`answer` to be the text or the index of one of `choices`, got a text that is not among them");
    row.answer = static_cast<size_t>(found - row.choices.begin());
  } else if (answer.is_number_integer() && answer >= 0 && answer < row.choices.size()) {
    row.answer = answer.get<size_t>();
  } else {
    complain(fmt::format("`answer` to be the text or the index of one of `choices`, 0 to {}, got {}", row.choices.size() - 1,
                         answer.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  return row;
}

ChoiceTokens tokens_of(std::string prompt, const std::string& choice, const data::Tokenizer& tokenizer, const std::string& where) {
  const size_t spaces = prompt.size() - (prompt.find_last_not_of(" \t\n\r\v\f") + 1);  // trailing spaces, perhaps the whole prompt
  const std::string moved = prompt.substr(prompt.size() - spaces) + choice;
  prompt.resize(prompt.size() - spaces);
  ChoiceTokens all{tokenizer.encode(prompt + moved), std::ssize(tokenizer.encode(prompt)), std::ssize(choice)};
  const auto before = data::missing_before(tokenizer.around(), all.tokens);
  all.tokens.insert(all.tokens.begin(), before.begin(), before.end());
  all.begin += std::ssize(before);
  if (all.begin == 0) {
    const auto named = tokenizer.named();
    const auto first = named.begin_of_text ? named.begin_of_text : named.end_of_text;
    if (!first)
      throw Error(ErrorCode::data,
                  where + " expected a prompt that is not empty, because the tokenizer has no begin-of-text token, got an empty one");
    all.tokens.insert(all.tokens.begin(), *first);
    all.begin = 1;
  }
  if (all.begin >= std::ssize(all.tokens))
    throw Error(ErrorCode::data, where + " expected each choice to add at least one token to the prompt, got a choice that adds none");
  return all;
}

// Removes tokens from the beginning if there are more than `positions` + 1. Returns whether any were removed.
bool keep_last(ChoiceTokens& choice, i64 positions, const std::string& where) {
  const i64 dropped = std::ssize(choice.tokens) - (positions + 1);
  if (dropped <= 0) return false;
  if (dropped >= choice.begin)
    throw Error(ErrorCode::data, fmt::format("{} expected each choice to fit into a sequence of {} tokens, got a choice of {} tokens",
                                             where, positions, std::ssize(choice.tokens) - choice.begin));
  choice.tokens.erase(choice.tokens.begin(), choice.tokens.begin() + dropped);
  choice.begin -= dropped;
  return true;
}

}  // namespace

bool has_choices(const std::string& path) {
  if (!data::is_json_lines(path)) return false;
  data::LineReader lines(path, data::kMostRowBytes);
  for (std::string line; lines.next(line);) {
    if (const Json json = parse_ordered_json(line); json.is_object()) return json.contains("choices");
  }
  return false;
}

ChoiceRows read_choice_rows(const std::vector<std::string>& paths, bool skip_bad_lines, const data::Tokenizer& tokenizer, i64 vocabulary,
                            i64 positions) {
  ChoiceRows all;
  for (const std::string& path : paths) {
    std::map<std::string, i64> unread;
    data::LineReader lines(path, data::kMostRowBytes);
    for (std::string line; lines.next(line);) {
      const std::string where = fmt::format("[data] {}, line {}:", path, lines.number());
      try {
        const Texts texts = texts_of(line, where);
        for (const std::string& key : texts.unread) ++unread[key];
        ChoiceRow row{{}, texts.answer, where};
        i64 cut = 0;
        for (const std::string& choice : texts.choices) {
          row.choices.push_back(tokens_of(texts.prompt, choice, tokenizer, where));
          check_prompt(row.choices.back().tokens, vocabulary, where);
          cut += keep_last(row.choices.back(), positions, where);
        }
        all.rows.push_back(std::move(row));
        all.cut_prompts += cut;
      } catch (const Error& e) {
        if (!skip_bad_lines || e.code() != ErrorCode::data) throw;
        ++all.bad_lines;
      }
    }
    std::ranges::move(unread_notes(path, unread), std::back_inserter(all.notes));
  }
  if (all.rows.empty()) throw Error(ErrorCode::data, fmt::format("[data] expected rows with choices in {}, got none", paths.front()));
  return all;
}

}  // namespace spillway::app
