// The methods of dicts, lists and tuples, and where those of texts are found.
#include <algorithm>

#include "data/chat/builtins.h"
#include "data/chat/operators.h"
#include "data/chat/text_format.h"
#include "data/chat/text_methods.h"

namespace spillway::data::chat {
namespace {

Value get(Run& run, const Bound& a) {
  const Value* found = a.at(0).dict()->find(run, a.at(1));
  if (found) return *found;
  return a[2] ? a.at(2) : Value(None{});
}

template <Form form>
Value view(Run& run, const Bound& a) {
  Values items;
  for (const auto& [key, value] : a.at(0).dict()->entries) {
    items.push_back(form == Form::keys ? key : form == Form::values ? value : make_sequence(run, Form::tuple, {key, value}));
  }
  return make_sequence(run, form, std::move(items));
}

const Builtin kOfDicts[] = {
    {"get", {"", "", ""}, 2, get},
    {"items", {""}, 1, view<Form::items>},
    {"keys", {""}, 1, view<Form::keys>},
    {"values", {""}, 1, view<Form::values>},
};

Value count(Run& run, const Bound& a) {
  const Values& items = a.at(0).sequence()->items;
  return i64{std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(run, item, a.at(1)); })};
}

Value index(Run& run, const Bound& a) {
  const Values& items = a.at(0).sequence()->items;
  const auto size = static_cast<i64>(items.size());
  const auto clamp = [&](i64 i) { return i < 0 ? std::max<i64>(i + size, 0) : std::min(i, size); };
  for (i64 i = clamp(a.whole(run, 2, 0)); i < clamp(a.whole(run, 3, size)); ++i) {
    if (equal(run, items[static_cast<size_t>(i)], a.at(1))) return i;
  }
  run.fail("expected an item that is in the list, got another for index()");
}

const Builtin kOfLists[] = {
    {"count", {"", ""}, 2, count},
    {"index", {"", "", "", ""}, 2, index},
};

std::span<const Builtin> methods_of(const Value& self) {
  if (self.text()) return text_methods();
  if (self.dict()) return kOfDicts;
  if (self.sequence() && self.sequence()->has_index()) return kOfLists;
  return {};
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  return find_builtin(methods_of(self), name) || (self.text() && name == "format");
}

Value call_method(Run& run, const Value& self, const std::string& name, Arguments arguments) {
  if (self.text() && name == "format") return brace_format(run, *self.text(), arguments);
  arguments.plain.insert(arguments.plain.begin(), self);
  return call_builtin(run, "method", *find_builtin(methods_of(self), name), std::move(arguments));
}

}  // namespace spillway::data::chat
