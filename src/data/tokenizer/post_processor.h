// The "post_processor" of a tokenizer.json, reduced to what matters for a single text: the special tokens around it. Immutable and
// thread-safe.
#pragma once
#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"

namespace spillway::data {

/// Reads the special tokens to put around a text. Null gives none. Throws Error(data).
Around read_post_processor(const nlohmann::json& value, const JsonPlace& place);

}  // namespace spillway::data
