#include "data/template/chat_template.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/template/interpreter.h"
#include "data/template/syntax/parser.h"

namespace spillway::data {
namespace {

using chat::DictBuilder, chat::None, chat::Run, chat::Value, chat::Values;
using Json = ChatTemplate::Json;

// Converts a message and leaves out its null keys. A message may hold the assistant's reasoning
// under one of several keys. The template gets it under the two keys that templates read.
Value prepared(Run& run, const Json& message) {
  constexpr std::array<const char*, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};
  const Json* reasoning = nullptr;
  for (const char* name : kReasoning) {
    const auto found = message.find(name);
    if (!reasoning && found != message.end() && !found->is_null()) reasoning = &*found;
  }
  DictBuilder dict(run);
  const Value reason = reasoning ? from_json(run, *reasoning) : Value(None{});
  if (reasoning) dict.set("thinking", reason);
  for (const auto& [key, item] : message.items()) {
    if (!item.is_null()) dict.set(from_json(run, Json(key)), from_json(run, item));
  }
  if (reasoning) dict.set("reasoning_content", reason);
  return dict.done();
}

Values prepared_messages(Run& run, const Json& messages) {
  if (!messages.is_array() || messages.empty()) run.fail("expected a list of at least one message, got something else");
  Values all;
  for (const Json& message : messages) {
    run.message = static_cast<i64>(all.size()) + 1;
    if (!message.is_object()) run.fail(std::string("expected messages that are objects, got one that is ") + message.type_name());
    all.push_back(prepared(run, message));
  }
  run.message = 0;
  return all;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, std::string name)
    : name_(std::move(name)), source_(std::move(source)), syntax_(std::make_shared<const chat::Syntax>(chat::parse(source_, name_))) {}

bool ChatTemplate::has_generation_blocks() const { return syntax_->has_generation; }

ChatTemplate::Rendered ChatTemplate::render(const Json& messages, const Json& variables, bool add_generation_prompt,
                                            std::time_t now) const {
  if (for_tools_ && variables.is_object() && variables.contains("tools") && !variables["tools"].is_null())
    return for_tools_->render(messages, variables, add_generation_prompt, now);
  Run run(name_, now);
  run.count_read(source_.size());
  if (!variables.is_object() && !variables.is_null()) run.fail("expected an object of template variables, got something else");
  const Values prepared = prepared_messages(run, messages);
  DictBuilder all(run);
  all.set("messages", make_list(run, prepared));
  all.set("tools", None{});
  all.set("documents", None{});
  all.set("add_generation_prompt", add_generation_prompt);
  for (const auto& [key, value] : variables.items()) {
    if (key == "messages" || key == "add_generation_prompt")
      run.fail("expected template variables other than those that this program sets, got '" + key + "' among them");
    all.set(key, from_json(run, value));
  }
  run.begin();
  chat::Interpreter interpreter(run, std::get<std::shared_ptr<const chat::Dict>>(all.done().held()), prepared);
  Rendered rendered;
  rendered.text = interpreter.run(syntax_->body);
  rendered.has_generation_blocks = syntax_->has_generation;
  for (const auto& [begin, end] : interpreter.generated()) rendered.assistant.push_back({static_cast<i64>(begin), static_cast<i64>(end)});
  return rendered;
}

}  // namespace spillway::data
