// A model's chat template: the program in Jinja's language, beside its tokenizer, that makes a conversation the text it was trained on.
// This renders byte for byte what transformers' apply_chat_template does (5.24, over Jinja 3.1.6: trim_blocks and lstrip_blocks, the
// immutable sandbox, `tojson` without HTML escapes, keys of messages that are null dropped, reasoning under the names that templates read),
// and says which bytes the {% generation %} blocks gave. What chat templates do not use of Jinja and Python is refused by name, never
// guessed: include, import, extends, block, autoescape, filters that wrap or link text, whole numbers beyond 64 bits. Const and
// thread-safe.
#pragma once
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/byte_range.h"

namespace spillway::data {

namespace chat {
struct Syntax;
}

class ChatTemplate {
 public:
  using Json = nlohmann::ordered_json;  // objects keep their order, which templates see

  /// `name` stands in errors: the template's file. Error(data) "[chat template] FILE, line N: expected …, got …" for what is no template or
  /// goes beyond what is known here: at most 1 MiB, expressions and blocks nested 200 deep, names of 256 bytes, and 1000 parameters of a
  /// macro and arguments by name of a call.
  ChatTemplate(std::string source, std::string name);

  struct Rendered {
    std::string text;
    std::vector<ByteRange> assistant;  // of the {% generation %} blocks as transformers counts them, in order and apart from each other
    bool has_generation_blocks = false;
  };

  /// `messages` is a list of objects, not empty; `variables` an object with what the template can read beside them: bos_token, tools,
  /// enable_thinking… (`tools` and `documents` are none where not given). `now` is what strftime_now() tells, in local time.
  /// Error(data) names the line and, in the loop over messages, the message's number (from 1): what raise_exception says, what Python would
  /// refuse, and more than run.h allows: steps and bytes at once by the size of the template and the conversation, 200 calls of macros in
  /// each other, values nested 200 deep.
  Rendered render(const Json& messages, const Json& variables, bool add_generation_prompt, std::time_t now = std::time(nullptr)) const;

  /// Conversations whose variable `tools` is not null are rendered by `other` from now on.
  void use_for_tools(ChatTemplate other) { for_tools_ = std::make_shared<const ChatTemplate>(std::move(other)); }
  /// Null where there is none.
  const ChatTemplate* for_tools() const { return for_tools_.get(); }

  bool has_generation_blocks() const;
  const std::string& name() const { return name_; }
  const std::string& source() const { return source_; }

 private:
  std::string name_, source_;
  std::shared_ptr<const chat::Syntax> syntax_;
  std::shared_ptr<const ChatTemplate> for_tools_;
};

}  // namespace spillway::data
