// Implements the methods of dicts, lists and tuples, and the table look-up that finds these methods and those of texts.
#include <fmt/format.h>

#include <algorithm>

#include "data/template/values/builtins.h"
#include "data/template/values/markup.h"
#include "data/template/values/operators.h"
#include "data/template/values/text_format.h"
#include "data/template/values/text_methods.h"

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

// Implements copy(). Template values are immutable, so a copy is the value itself.
Value copy(Run&, const Bound& a) { return a.at(0); }

const Builtin kOfDicts[] = {
    {"copy", {""}, 1, copy},
    {"get", {"", "", ""}, 2, get},
    {"items", {""}, 1, view<Form::items>},
    {"keys", {""}, 1, view<Form::keys>},
    {"values", {""}, 1, view<Form::values>},
};

Value count_of_item(Run& run, const Bound& a) {
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
  run.fail("expected index() to get an item of the list, got a value that is not in the list");
}

const Builtin kOfLists[] = {
    {"copy", {""}, 1, copy},
    {"count", {"", ""}, 2, count_of_item},
    {"index", {"", "", "", ""}, 2, index},
};

Value next(Run&, const Bound& a) {
  const Turns& turns = *a.at(0).turns();
  const size_t now = std::exchange(turns.at, (turns.at + 1) % turns.items.size());
  return turns.items[now];
}

Value reset(Run&, const Bound& a) {
  a.at(0).turns()->at = 0;
  return None{};
}

const Builtin kOfCyclers[] = {
    {"next", {""}, 1, next},
    {"reset", {""}, 1, reset},
};

Value cycle(Run& run, const Loop& loop, Arguments arguments) {
  if (!arguments.named.empty())
    run.fail(fmt::format("loop.cycle() got an unexpected keyword argument '{}'", arguments.named.front().first));
  if (arguments.plain.empty()) run.fail("no items for cycling given");
  return arguments.plain[loop.index % arguments.plain.size()];
}

// Implements loop.changed(). Returns true if the values differ from those
// of the previous call in the same loop, or if there was no previous call.
Value changed(Run& run, const Loop& loop, Arguments arguments) {
  if (!arguments.named.empty())
    run.fail(fmt::format("loop.changed() got an unexpected keyword argument '{}'", arguments.named.front().first));
  const Value values = make_sequence(run, Form::tuple, std::move(arguments.plain));
  Space*& seen = *loop.seen;
  if (seen && equal(run, seen->attributes.front().second, values)) return false;
  if (!seen) {
    seen = run.new_space();
    seen->attributes.emplace_back("", values);
  }
  seen->attributes.front().second = values;
  return true;
}

std::span<const Builtin> methods_of(const Value& self) {
  if (self.text()) return text_methods();
  if (self.dict()) return kOfDicts;
  if (self.turns() && self.turns()->is_cycler) return kOfCyclers;
  if (self.sequence() && self.sequence()->is_list()) return kOfLists;
  // tuples have all methods of lists except the first in the table, copy()
  if (self.sequence() && self.sequence()->is_tuple()) return std::span(kOfLists).subspan(1);
  return {};
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  return find_builtin(methods_of(self), name) || (self.text() && name == "format") ||
         (self.loop() && (name == "cycle" || name == "changed"));
}

Value call_method(Run& run, const Value& self, const std::string& name, Arguments arguments) {
  if (self.text() && name == "format") return brace_format(run, self, arguments);
  if (self.loop()) return (name == "cycle" ? cycle : changed)(run, *self.loop(), std::move(arguments));
  if (self.is_markup()) escape_arguments(run, name, arguments);
  arguments.plain.insert(arguments.plain.begin(), self);
  const Value outcome = call_builtin(run, "method", *find_builtin(methods_of(self), name), std::move(arguments));
  return self.is_markup() ? marked(run, name, outcome) : outcome;
}

}  // namespace spillway::data::chat
