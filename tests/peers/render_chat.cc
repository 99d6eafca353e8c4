// Renders chat templates for tests/peers/chat_templates.py.
// The program reads one JSON object per line and answers
// each with a line {"text", "spans"} or {"error"}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/template/chat_template.h"

using Json = spillway::data::ChatTemplate::Json;

namespace {

Json answer(const Json& asked) {
  try {
    const spillway::data::ChatTemplate chat(asked["template"], "template");
    const auto rendered =
        chat.render(asked["messages"], asked["variables"], asked["add_generation_prompt"], asked["now"].get<std::time_t>());
    Json spans = Json::array();
    for (const auto& span : rendered.assistant) spans.push_back({span.begin, span.end});
    return {{"text", rendered.text}, {"spans", spans}};
  } catch (const spillway::Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(Json::parse(line)).dump() << std::endl;
}
