// The "post_processor" of a tokenizer.json. Only the part for a single text is
// read: the special tokens that are put around the text. Immutable and thread-safe.
#pragma once
#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"

namespace spillway::data {

/// Reads the special tokens to put before and after a text. If `value` is null, there are no such tokens. Throws Error(data).
Around read_post_processor(const nlohmann::json& value, const JsonPlace& place);

}  // namespace spillway::data
