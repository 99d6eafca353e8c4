// From the bytes that a template's {% generation %} blocks gave to the tokens that count in training. A pure function.
#pragma once
#include <span>
#include <vector>

#include "data/chat/chat_template.h"

namespace spillway::data {

/// 1 for each token that shares a byte with a span, else 0. `tokens` are the bytes of each token in the rendered text, in order, as are
/// `assistant`; a token of no bytes counts for nothing. Error(bug) for spans that are not in order.
std::vector<u8> mask_of_spans(std::span<const ByteRange> tokens, std::span<const ByteRange> assistant);

}  // namespace spillway::data
