// Reads multiple-choice rows, one per line of a .jsonl file: {"prompt": TEXT, "choices": [TEXT,
// …], "answer": the index of a choice, counted from 0, or its text}. The types are plain values.
#pragma once
#include <string>
#include <vector>

#include "app/names/names.h"
#include "data/tokenizer/tokenizer.h"
#include "trainer/settings/config.h"

namespace spillway::app {

/// ChoiceTokens holds the tokens of a prompt followed by one of its choices.
struct ChoiceTokens {
  std::vector<i32> tokens;
  i64 begin = 0;  // index of the choice's first token
  i64 bytes = 0;  // length of the choice's text
};

struct ChoiceRow {
  std::vector<ChoiceTokens> choices;  // the choices of the row, at least two
  size_t answer = 0;
  std::string where;  // where the row stands, for messages: "[data] FILE, line N:"
};

struct ChoiceRows {
  std::vector<ChoiceRow> rows;
  i64 cut_prompts = 0;  // number of choices whose prompt lost tokens at its beginning
  i64 bad_lines = 0;
  std::vector<std::string> notes;  // one line for each key of the rows that is not read
};

/// Returns whether the first line that is a JSON object has choices. Throws Error(data) if the file cannot be read.
bool has_choices(const std::string& path);

/// Reads and tokenizes the rows. Prompt and choice are tokenized as one text. If the prompt alone has n tokens, the tokens after the
/// first n belong to the choice; spaces at the end of the prompt belong to the choice (as in EleutherAI's lm-evaluation-harness). The
/// special tokens that the tokenizer puts before a text are put before the prompt. Those that it puts after a text are left out, because
/// a choice is scored by its own tokens only. A prompt without tokens is replaced by the begin-of-text token, or by the end-of-text token
/// if the tokenizer has no begin-of-text token. If prompt and choice together have more than `positions` + 1 tokens, the first ones are
/// removed. Throws Error(data), which names file and line and what was expected; with --skip-bad-lines bad lines are counted instead.
ChoiceRows read_choice_rows(const std::vector<std::string>& paths, bool skip_bad_lines, const data::Tokenizer& tokenizer, i64 vocabulary,
                            i64 positions);

}  // namespace spillway::app
