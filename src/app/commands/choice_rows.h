// Rows that a model chooses an answer of: {"prompt": TEXT, "choices": [TEXT, …], "answer": a choice's number from 0, or its text}, a line
// of .jsonl each. Values.
#pragma once
#include <string>
#include <vector>

#include "app/flags/config.h"
#include "data/tokenizer/tokenizer.h"

namespace spillway::app {

/// A choice behind its prompt.
struct ChoiceTokens {
  std::vector<i32> tokens;
  i64 begin = 0;  // of the choice's own
  i64 bytes = 0;  // of its text
};

struct ChoiceRow {
  std::vector<ChoiceTokens> choices;  // two at least
  size_t answer = 0;
  std::string where;  // "[data] FILE, line N:"
};

struct ChoiceRows {
  std::vector<ChoiceRow> rows;
  i64 cut_prompts = 0;  // choices whose prompt lost its beginning
  i64 bad_lines = 0;
  std::vector<std::string> notes;  // a line for each key that is not read
};

/// Whether the first line that is a JSON object has choices. Error(data): the file cannot be read.
bool has_choices(const std::string& path);

/// Prompt and choice are made into tokens together, and the choice's are those that the prompt alone does not have; spaces at the prompt's
/// end belong to the choice (as EleutherAI's lm-evaluation-harness has it). What the tokenizer puts before a text stands before the prompt;
/// what it puts behind one is left out, since a choice is scored by its own tokens. A prompt without tokens begins with the token that
/// begins a text, or else ends it. Of more than `positions` + 1 tokens the first are dropped. Error(data) names file and line, and what was
/// expected;
/// --skip-bad-lines counts such lines.
ChoiceRows read_choice_rows(const std::vector<std::string>& paths, bool skip_bad_lines, const data::Tokenizer& tokenizer, i64 vocabulary,
                            i64 positions);

}  // namespace spillway::app
