// The special tokens that a tokenizer's post-processor puts around a text, and which of them a text still lacks. Values and pure functions.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace spillway::data {

class Tokenizer;

/// The ids before and behind a text.
struct Around {
  std::vector<i32> before, behind;
};

/// Those of `around.before` that a text of these ids does not begin with, and those of `around.behind` that it does not end with: a text
/// that has its first or last special token written in it gets no second one.
std::span<const i32> missing_before(const Around& around, std::span<const i32> ids);
std::span<const i32> missing_behind(const Around& around, std::span<const i32> ids);

/// The ids that `tokenizer(text)` gives in transformers, but for special tokens that the text has already.
std::vector<i32> encode_with_around(const Tokenizer& tokenizer, std::string_view text);

}  // namespace spillway::data
