// ChatTemplate is a model's chat template: a program in the Jinja language, stored beside the tokenizer, that turns a
// conversation into the text format on which the model was trained. The output equals that of transformers'
// apply_chat_template byte for byte (5.24, over Jinja 3.1.6). That includes trim_blocks and lstrip_blocks, the immutable
// sandbox, `tojson` without HTML escapes, the removal of null keys from messages, and reasoning under the names that templates
// read. ChatTemplate also tells which bytes the {% generation %} blocks produced. If a template uses a feature of Jinja or
// Python that chat templates do not need, the error names that feature; nothing is guessed. Such features are include, import,
// extends, block, autoescape, filters that wrap or link text, and whole numbers beyond 64 bits. Const and thread-safe.
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
  using Json = nlohmann::ordered_json;  // the ordered kind: an object keeps the order of its keys, which a template can see

  /// Parses a template. Error messages call its file `name`. Throws Error(data) "[chat template] FILE, line N:
  /// expected …, got …" if the source is not a valid template or exceeds one of these limits: 1 MiB, expressions and
  /// blocks nested 200 deep, names of 256 bytes, 1000 parameters of a macro, and 1000 keyword arguments of a call.
  ChatTemplate(std::string source, std::string name);

  struct Rendered {
    std::string text;
    // The bytes of the text that the {% generation %} blocks produced, computed as transformers does; in order and without overlaps.
    std::vector<ByteRange> assistant;
    bool has_generation_blocks = false;
  };

  /// Renders a conversation. `messages` is a non-empty list of objects. `variables` is an object with the other values that the template
  /// can read: bos_token, tools, enable_thinking… (`tools` and `documents` are none if they are not given). `now` is the time that
  /// strftime_now() shows, in local time. Throws Error(data) if the template calls raise_exception, if Python would raise an error, or if
  /// the rendering exceeds a limit. The message names the line and, inside the loop over messages, the number of the message (from 1). The
  /// limits are those of run.h: steps and memory in proportion to the template and the conversation, 200 nested calls of macros, and values
  /// nested 200 deep.
  Rendered render(const Json& messages, const Json& variables, bool add_generation_prompt, std::time_t now = std::time(nullptr)) const;

  /// Makes render() use the template `other`, from now on, for conversations whose variable `tools` is not null.
  void use_for_tools(ChatTemplate other) { for_tools_ = std::make_shared<const ChatTemplate>(std::move(other)); }
  /// Returns the template that renders conversations with tools, or null if this template renders such conversations itself.
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
