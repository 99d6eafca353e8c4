// Which bytes of a rendered conversation the assistant said.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/rows/row.h"

namespace spillway::data {

/// The bytes that count of `rendered`, which is `row`'s conversation with these variables: of the template's generation blocks, or of what
/// each of the assistant's messages adds to the conversation before it. Messages of row.left_out have none. Error(data) that begins with
/// `where`: a message takes back what the template wrote before it, so that its bytes are not known.
std::vector<ByteRange> answers_in(const ChatTemplate& chat, const nlohmann::ordered_json& variables, const Row& row,
                                  const ChatTemplate::Rendered& rendered, const std::string& where);

}  // namespace spillway::data
