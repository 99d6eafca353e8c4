// The layouts of rows that take more than a key or two, each in a file of its own. Errors are parse_row's.
#pragma once
#include "data/rows/json_line.h"
#include "data/rows/row.h"

namespace spillway::data {

/// Fills row.prompt, row.completion and row.history.
void read_alpaca(const JsonLine& line, Row& row);
/// Fill row.messages, row.variables and row.left_out.
void read_messages(JsonLine& line, Row& row);
void read_conversations(const JsonLine& line, Row& row);
/// Fills row.ids, row.counted and row.begins.
void read_token_row(const JsonLine& line, Row& row);

}  // namespace spillway::data
