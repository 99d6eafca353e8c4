#include "data/template/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "data/template/interpreter.h"
#include "data/template/values/builtins.h"
#include "data/template/values/markup.h"
#include "data/template/values/print_value.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

__extension__ typedef __int128 i128;

// Returns the attributes that Python's types have but this program does not support. A template that uses
// one gets an error that names it. Without this list, such an attribute would silently be undefined.
const std::set<std::string_view>& unknown_attributes(const Value& owner, std::string_view name) {
  static const std::set<std::string_view> of_text = {"casefold",    "encode",  "expandtabs", "format_map", "isascii",  "isidentifier",
                                                     "isprintable", "istitle", "maketrans",  "swapcase",   "translate"},
                                          of_markup = {"escape", "striptags", "unescape"},
                                          of_number = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
                                                       "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
                                                       "numerator",        "real",      "to_bytes"},
                                          of_view = {"isdisjoint", "mapping"}, of_dict = {"fromkeys"}, of_range = {"count", "index"},
                                          of_function = {"fromkeys", "explicit_caller"}, none;
  if (owner.text()) return owner.is_markup() && of_markup.contains(name) ? of_markup : of_text;
  if (owner.number()) return of_number;
  if (owner.dict()) return of_dict;
  if (owner.range()) return of_range;
  if (owner.callable()) return of_function;
  if (const Sequence* s = owner.sequence()) return s->has_length() && !s->has_index() ? of_view : none;
  return none;
}

bool is_internal(std::string_view name) { return name.size() > 4 && name.starts_with("__") && name.ends_with("__"); }

Value hidden(const Value& owner, std::string_view name) {
  return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(owner)));
}

// Returns true for a Python method that would modify its object. Jinja's sandbox hides such methods.
bool changes(const Value& owner, std::string_view name) {
  static const std::set<std::string_view> of_list = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"},
                                          of_dict = {"clear", "pop", "popitem", "setdefault", "update"};
  if (owner.dict()) return of_dict.contains(name);
  return owner.sequence() && owner.sequence()->is_list() && of_list.contains(name);
}

Value loop_attribute(const Loop& loop, std::string_view name, bool& found) {
  const size_t count = loop.items->items.size(), i = loop.index;
  const auto neighbour = [&](size_t at, const char* which) {
    return at < count ? loop.items->items[at] : Value::undefined(fmt::format("there is no {} item", which));
  };
  const auto number = [](size_t n) { return Value(static_cast<i64>(n)); };
  found = true;
  if (name == "index") return number(i + 1);
  if (name == "index0") return number(i);
  if (name == "revindex") return number(count - i);
  if (name == "revindex0") return number(count - i - 1);
  if (name == "first") return i == 0;
  if (name == "last") return i + 1 == count;
  if (name == "length") return number(count);
  if (name == "previtem") return neighbour(i - 1, "previous");
  if (name == "nextitem") return neighbour(i + 1, "next");
  if (name == "depth") return loop.depth;
  if (name == "depth0") return loop.depth - 1;
  found = false;
  return {};
}

std::optional<Value> turns_attribute(Run& run, const Turns& turns, std::string_view name) {
  if (!turns.is_cycler) {
    if (name == "sep") return turns.items[0];
    if (name == "used") return Value(turns.at > 0);
    return {};
  }
  if (name == "current") return turns.items[turns.at];
  if (name == "pos") return Value(static_cast<i64>(turns.at));
  if (name == "items") return make_sequence(run, Form::tuple, turns.items);
  return {};
}

std::optional<Value> macro_attribute(Run& run, const MacroCode& code, std::string_view name) {
  if (name == "name") return Value(code.name);
  if (name == "caller") return Value(code.uses_caller);
  if (name == "catch_kwargs") return Value(code.uses_kwargs);
  if (name == "catch_varargs") return Value(code.uses_varargs);
  if (name != "arguments") return {};
  return make_sequence(run, Form::tuple, Values(code.parameters.begin(), code.parameters.end()));
}

std::optional<Value> range_attribute(const Range& range, std::string_view name) {
  if (name == "start") return Value(range.start);
  if (name == "stop") return Value(range.stop);
  if (name == "step") return Value(range.step);
  return {};
}

// Returns the method or attribute that Python's type has under this name, or nothing if the type has none.
std::optional<Value> own_attribute(Run& run, const Value& owner, std::string_view name) {
  if (is_internal(name)) return hidden(owner, name);
  if (changes(owner, name)) return hidden(owner, name);
  if (has_method(owner, name)) {
    return Value(std::shared_ptr<const Callable>(make_metered<Callable>(Callable{std::string(name), owner, nullptr})));
  }
  if (unknown_attributes(owner, name).contains(name))
    run.fail(fmt::format("expected a Python attribute that this program supports in chat templates, got {}.{}", type_name(owner), name));
  if (owner.space()) {
    run.spend(static_cast<i64>(owner.space()->attributes.size() / kScannedInAStep));
    for (const auto& [key, value] : owner.space()->attributes) {
      if (key == name) return value;
    }
  }
  if (owner.turns()) return turns_attribute(run, *owner.turns(), name);
  if (owner.range()) return range_attribute(*owner.range(), name);
  if (owner.callable() && owner.callable()->macro) return macro_attribute(run, owner.callable()->macro->code, name);
  if (owner.loop()) {
    bool found = false;
    Value value = loop_attribute(*owner.loop(), name, found);
    if (found) return value;
  }
  if (const Sequence* s = owner.sequence(); s && s->form == Form::group) {
    if (name == "grouper") return s->items[0];
    if (name == "list") return s->items[1];
  }
  return {};
}

Value no_such(const Value& owner, std::string_view shown) {
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", type_name(owner), shown));
}

[[noreturn]] void fail_undefined(const Run& run, const Value& owner) {
  const auto& why = std::get<Undefined>(owner.held()).why;
  run.fail(why ? std::string(*why) : "a value is undefined");
}

std::optional<Value> item_at(Run& run, const Value& owner, i64 index) {
  const auto place = [&](i64 count) { return index < 0 ? index + count : index; };
  if (const Sequence* s = owner.sequence(); s && s->has_index()) {
    const auto count = static_cast<i64>(s->items.size());
    const i64 at = place(count);
    if (at < 0 || at >= count) return {};
    return s->items[static_cast<size_t>(at)];
  }
  if (const Range* r = owner.range()) {
    const i64 at = place(r->size());
    if (at < 0 || at >= r->size()) return {};
    return Value(r->at(at));
  }
  if (const String* text = owner.text()) {
    run.spend_bytes(2 * text->size());
    const auto count = static_cast<i64>(code_point_count(*text));
    const i64 at = place(count);
    if (at < 0 || at >= count) return {};
    const size_t begin = code_point_offset(*text, static_cast<size_t>(at));
    return make_text_like(owner, text->substr(begin, code_point_bytes(*text, begin)));
  }
  return {};
}

}  // namespace

Value get_attribute(Run& run, const Value& owner, std::string_view name) {
  if (owner.is_undefined() && name != "__class__") fail_undefined(run, owner);
  if (auto own = own_attribute(run, owner, name)) return *own;
  if (owner.dict()) {
    if (const Value* found = owner.dict()->find(name)) return *found;
  }
  return no_such(owner, name);
}

Value get_item(Run& run, const Value& owner, const Value& key) {
  if (owner.is_undefined()) fail_undefined(run, owner);
  if (owner.dict()) {
    const bool list_like = key.dict() || (key.sequence() && !key.sequence()->is_tuple());
    if (const Value* found = list_like ? nullptr : owner.dict()->find(run, key)) return *found;
  } else if (key.whole()) {
    if (auto item = item_at(run, owner, *key.whole())) return *item;
  }
  if (key.text()) {
    if (auto own = own_attribute(run, owner, *key.text())) return *own;
  }
  if (key.text()) return no_such(owner, *key.text());
  return no_such(owner, key.whole() ? std::to_string(*key.whole()) : "");
}

namespace {

// Turns the arguments of a slice into a range of indices for a sequence of `count` items, as Python's slice.indices() does.
Range slice_range(Run& run, i64 count, const Value& start, const Value& stop, const Value& step) {
  const auto given = [&](const Value& v, i64 otherwise) {
    if (v.is_none()) return otherwise;
    if (!v.whole()) run.fail("slice indices must be integers or None, not " + type_name(v));
    return *v.whole();
  };
  const i64 stride = given(step, 1);
  if (stride == 0) run.fail("slice step cannot be zero");
  const i64 low = stride < 0 ? -1 : 0, high = stride < 0 ? count - 1 : count;
  const auto clamp = [&](i64 i) { return i < 0 ? std::max(i + count, low) : std::min(i, high); };
  Range range;
  range.start = start.is_none() ? (stride < 0 ? high : low) : clamp(given(start, 0));
  range.stop = stop.is_none() ? (stride < 0 ? low : high) : clamp(given(stop, 0));
  range.step = stride;
  return range;
}

// Returns origin + index · range.step: the position of an item of a sliced range, or of the range's end. Fails if the result exceeds 64
// bits, which is possible for the end.
i64 place_in(Run& run, const Range& range, i64 index, i64 origin) {
  const auto place = static_cast<i128>(origin) + static_cast<i128>(index) * range.step;
  if (place != static_cast<i64>(place)) run.fail("expected whole numbers that fit in 64 bits, got a larger one from a slice of a range");
  return static_cast<i64>(place);
}

}  // namespace

Value get_slice(Run& run, const Value& owner, const Value& start, const Value& stop, const Value& step) {
  if (owner.is_undefined()) fail_undefined(run, owner);
  if (const String* text = owner.text()) {
    run.spend_bytes(2 * text->size());
    const Range range = slice_range(run, static_cast<i64>(code_point_count(*text)), start, stop, step);
    if (range.step == 1) {
      const size_t begin = code_point_offset(*text, static_cast<size_t>(range.start));
      const size_t bytes = code_point_offset(std::string_view(*text).substr(begin), static_cast<size_t>(range.size()));
      return make_text_like(owner, text->substr(begin, bytes));
    }
    run.spend_letters(text->size());
    List<char32_t> points;
    points.reserve(text->size());
    for (const char32_t c : CodePoints(*text)) points.push_back(c);
    String out;
    for (i64 i = 0; i < range.size(); ++i) append_utf8(out, points[static_cast<size_t>(range.at(i))]);
    return make_text_like(owner, std::move(out));
  }
  if (const Sequence* s = owner.sequence(); s && s->has_index()) {
    const Range range = slice_range(run, static_cast<i64>(s->items.size()), start, stop, step);
    Values items;
    for (i64 i = 0; i < range.size(); ++i) items.push_back(s->items[static_cast<size_t>(range.at(i))]);
    return make_sequence(run, s->is_list() ? Form::list : Form::tuple, std::move(items));
  }
  if (const Range* r = owner.range()) {
    const Range places = slice_range(run, r->size(), start, stop, step);
    return Range{place_in(run, *r, places.start, r->start), place_in(run, *r, places.stop, r->start), place_in(run, *r, places.step, 0)};
  }
  run.fail(fmt::format("'{}' object is not subscriptable", type_name(owner)));
}

Value follow(Run& run, Value item, const Value& key, const Value* otherwise) {
  const auto step = [&](const Value& part) {
    item = get_item(run, item, part);
    if (otherwise && !otherwise->is_none() && item.is_undefined()) item = *otherwise;
  };
  if (key.is_none()) return item;
  if (!key.text()) {
    step(key);
    return item;
  }
  std::string_view rest = *key.text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool number =
        !part.empty() && part.size() < 18 && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    step(number ? Value(static_cast<i64>(std::stoll(std::string(part)))) : Value(part));
    if (dot == rest.npos) return item;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace spillway::data::chat
