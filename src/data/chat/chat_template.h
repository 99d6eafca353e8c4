// ChatTemplate is a model's chat template: a program in the Jinja language, stored beside the tokenizer, that turns a conversation into the
// text format on which the model was trained. The output equals that of transformers' apply_chat_template byte for byte (5.24, over Jinja
// 3.1.6): trim_blocks and lstrip_blocks, the immutable sandbox, `tojson` without HTML escapes, null keys of messages dropped, and reasoning
// passed under the names that templates read. It also tells which bytes the {% generation %} blocks produced. Features of Jinja and Python
// that chat templates do not use are refused by name, never guessed: include, import, extends, block, autoescape, filters that wrap or link
// text, whole numbers beyond 64 bits. Const and thread-safe.
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
  using Json = nlohmann::ordered_json;  // objects keep their order, which templates can see

  /// Parses a template. `name` is the template's file, for messages. Throws Error(data) "[chat template] FILE, line N: expected …, got …"
  /// if the source is no valid template or exceeds the limits: 1 MiB, expressions and blocks nested 200 deep, names of 256 bytes, 1000
  /// parameters of a macro, and 1000 keyword arguments of a call.
  ChatTemplate(std::string source, std::string name);

  struct Rendered {
    std::string text;
    // The bytes of {% generation %} blocks, counted as transformers counts them; in order and without overlaps.
    std::vector<ByteRange> assistant;
    bool has_generation_blocks = false;
  };

  /// Renders a conversation. `messages` is a non-empty list of objects. `variables` is an object with the other values that the template
  /// can read: bos_token, tools, enable_thinking… (`tools` and `documents` are none if not given). `now` is the time that strftime_now()
  /// shows, in local time. Throws Error(data), which names the line and, in the loop over messages, the number of the message (from 1): for
  /// raise_exception, for what Python would refuse, and for exceeding the limits of run.h. These are steps and memory in proportion to the
  /// template and the conversation, 200 nested calls of macros, and values nested 200 deep.
  Rendered render(const Json& messages, const Json& variables, bool add_generation_prompt, std::time_t now = std::time(nullptr)) const;

  /// From now on, conversations whose variable `tools` is not null are rendered by `other`.
  void use_for_tools(ChatTemplate other) { for_tools_ = std::make_shared<const ChatTemplate>(std::move(other)); }
  /// Returns the template for conversations with tools, or null if there is none.
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
