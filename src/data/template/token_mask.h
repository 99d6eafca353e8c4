// Converts the byte ranges that a template's {% generation %} blocks produced to a mask of the tokens that contribute to the loss. A pure
// function.
#pragma once
#include <span>
#include <vector>

#include "data/template/chat_template.h"

namespace spillway::data {

/// Returns a mask with 1 for each token that shares a byte with a range in `assistant`, and 0 for all other tokens. `tokens` holds for each
/// token its byte range in the rendered text. Throws Error(bug) unless both lists are in ascending order. A token without bytes gets 0.
std::vector<u8> mask_of_spans(std::span<const ByteRange> tokens, std::span<const ByteRange> assistant);

}  // namespace spillway::data
