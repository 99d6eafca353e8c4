// Finds which bytes of a rendered conversation the assistant said. Only those contribute to the loss.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/rows/row.h"

namespace spillway::data {

/// Returns the byte ranges of `rendered` that contribute to the loss. `rendered` is the conversation of `row`, rendered with `variables`.
/// The ranges are the template's generation blocks, or, if it has none, what each assistant message adds to the conversation before it.
/// Messages in row.left_out get no range. Throws Error(data), which begins with `where`, if a message changes what the template wrote
/// before it, because then its bytes cannot be told.
std::vector<ByteRange> answers_in(const ChatTemplate& chat, const nlohmann::ordered_json& variables, const Row& row,
                                  const ChatTemplate::Rendered& rendered, const std::string& where);

}  // namespace spillway::data
