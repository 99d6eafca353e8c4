// The "post_processor" of a tokenizer.json, as far as it matters for one text: the special tokens around it. Immutable and thread-safe.
#pragma once
#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"

namespace spillway::data {

/// Null gives nothing. Errors: Error(data).
Around read_post_processor(const nlohmann::json& value, const JsonPlace& place);

}  // namespace spillway::data
