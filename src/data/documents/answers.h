// Finds which bytes of a rendered conversation are the assistant's answers. Only the answers contribute to the loss.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/rows/row.h"
#include "data/template/chat_template.h"

namespace spillway::data {

/// Returns the byte ranges of `rendered` that contribute to the loss. `rendered` is the conversation of `row`, rendered with `variables`.
/// If the template has generation blocks, the ranges are those blocks; if it has none, each range is what an assistant message adds to
/// the text of the conversation before it. Messages in row.left_out get no range. If a message changes text that the template wrote for
/// earlier messages, it is not clear which bytes the message adds; answers_in() then throws an Error(data) that begins with `where`.
std::vector<ByteRange> answers_in(const ChatTemplate& chat, const nlohmann::ordered_json& variables, const Row& row,
                                  const ChatTemplate::Rendered& rendered, const std::string& where);

}  // namespace spillway::data
