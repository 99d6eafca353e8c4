#include "data/template/values/builtins.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/template/values/print_value.h"

namespace spillway::data::chat {

i64 Bound::whole(Run& run, size_t i, i64 otherwise) const {
  if (!values_[i]) return otherwise;
  const auto n = values_[i]->whole();
  if (!n) run.fail(fmt::format("expected a whole number as argument {}, got '{}'", i, type_name(*values_[i])));
  return *n;
}

bool Bound::flag(size_t i, bool otherwise) const { return values_[i] ? truth(*values_[i]) : otherwise; }

const String& Bound::text(Run& run, size_t i) const {
  const String* text = values_[i]->text();
  if (!text) run.fail(fmt::format("expected a text as argument {}, got '{}'", i, type_name(*values_[i])));
  return *text;
}

String Bound::text(Run& run, size_t i, const char* otherwise) const { return values_[i] ? text(run, i) : String(otherwise); }

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Builtin& b) { return b.name == name; });
  return found == table.end() ? nullptr : &*found;
}

Value call_builtin(Run& run, const char* kind, const Builtin& builtin, Arguments arguments) {
  const auto fail = [&](const std::string& what) { run.fail(fmt::format("{} '{}': {}", kind, builtin.name, what)); };
  const auto& parameters = builtin.parameters;
  if (arguments.plain.size() > parameters.size())
    fail(fmt::format("expected at most {} arguments, got {}", parameters.size(), arguments.plain.size()));
  Bound bound(parameters.size());
  for (size_t i = 0; i < arguments.plain.size(); ++i) bound.set(i, std::move(arguments.plain[i]));
  for (auto& [name, value] : arguments.named) {
    const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const char* p) { return *p != '\0' && name == p; });
    if (found == parameters.end()) fail(fmt::format("got an unexpected keyword argument '{}'", name));
    const auto i = static_cast<size_t>(found - parameters.begin());
    if (bound[i]) fail(fmt::format("got argument '{}' twice", name));
    bound.set(i, std::move(value));
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (!bound[i]) fail(fmt::format("expected at least {} arguments, got fewer", builtin.required));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (bound[i] && bound[i]->text()) run.spend_bytes(bound[i]->text()->size());
  }
  return builtin.run(run, bound);
}

}  // namespace spillway::data::chat
