// Readers of the row layouts that consist of more than two keys. Each layout has
// its own source file. The functions throw the errors that parse_row() documents.
#pragma once
#include "data/rows/json_line.h"
#include "data/rows/row.h"

namespace spillway::data {

/// Fills row.prompt, row.completion and row.history from an Alpaca row.
void read_alpaca(const JsonLine& line, Row& row);
/// read_messages() and read_conversations() fill row.messages, row.variables and row.left_out: read_messages() from the key `messages`,
/// read_conversations() from ShareGPT's `conversations`.
void read_messages(JsonLine& line, Row& row);
void read_conversations(const JsonLine& line, Row& row);
/// Fills row.ids, row.counted and row.begins from a row of token ids.
void read_token_row(const JsonLine& line, Row& row);

}  // namespace spillway::data
