// Describes what a model that trains on a file sees. Of rows (.jsonl) these are the first rows, tokenized and packed as `train` does, and
// counts of rows and tokens; of plain text (.txt) the counts.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/console/console.h"
#include "app/names/names.h"
#include "trainer/settings/config.h"

namespace spillway::app {

/// Describes the file. Its tokens are cached like those of evaluate. The member `first_rows` holds the text of the first rows.
/// Throws the errors that train would throw: Error(usage) for flags that do not fit the model, Error(data) for a bad line.
nlohmann::ordered_json describe_rows(const InspectConfig& config, Console& console);

/// Describes a file of plain text: its lines and bytes (unpacked, if the file is compressed), the tokens and rows that the tokenizer makes
/// of it, and a command that trains on it. Tokens are cached, and the errors are those of describe_rows().
nlohmann::ordered_json describe_text(const InspectConfig& config, Console& console);

/// Returns `first_rows` as text for a reader. The text that contributes to the loss is coloured, or stands between ⟦
/// and ⟧. A line of dashes separates the documents of a row. Control characters are escaped, and a long row is cut.
std::string first_rows_text(const nlohmann::ordered_json& about, const Console& console);

}  // namespace spillway::app
