// Implements the filters of chat templates whose input is a list or a dict.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "data/template/access.h"
#include "data/template/values/builtins.h"
#include "data/template/values/markup.h"
#include "data/template/values/operators.h"
#include "data/template/values/print_value.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

Value lowered(Run& run, std::string_view text) {
  run.spend_letters(text.size());
  return lower(text);
}

Value without_case(Run& run, const Value& value, bool case_sensitive) {
  return case_sensitive || !value.text() ? value : lowered(run, *value.text());
}

Value length(Run& run, const Bound& a) {
  const Value& v = a.at(0);
  if (v.text()) {
    return static_cast<i64>(code_point_count(*v.text()));
  }
  if (v.sequence() && v.sequence()->has_length()) return static_cast<i64>(v.sequence()->items.size());
  if (v.dict()) return static_cast<i64>(v.dict()->entries.size());
  if (v.range()) return v.range()->size();
  if (v.loop()) return static_cast<i64>(v.loop()->items->items.size());
  if (v.is_undefined()) return i64{0};
  run.fail(fmt::format("object of type '{}' has no len()", type_name(v)));
}

Value first(Run& run, const Bound& a) {
  const Sequence* s = a.at(0).sequence();
  if (s && s->form == Form::generator && s->taken < s->items.size()) return s->items[s->taken++];
  const auto items = items_of(run, a.at(0));
  return items->items.empty() ? Value::undefined("No first item, sequence was empty.") : items->items.front();
}

void refuse_generator(Run& run, const Value& value) {
  if (value.sequence() && !value.sequence()->has_length()) run.fail("'generator' object is not reversible");
}

Value last(Run& run, const Bound& a) {
  refuse_generator(run, a.at(0));
  const auto items = items_of(run, a.at(0));
  if (items->items.empty()) return Value::undefined("No last item, sequence was empty.");
  return a.at(0).is_markup() ? make_markup(*items->items.back().text()) : items->items.back();
}

Value list(Run& run, const Bound& a) { return make_list(run, items_of(run, a.at(0))->items); }

Value reverse(Run& run, const Bound& a) {
  const Value& v = a.at(0);
  if (v.text()) {
    const String& text = *v.text();
    run.spend_letters(text.size());
    String out;
    out.reserve(text.size());
    for (size_t end = text.size(); end > 0;) {
      const size_t begin = code_point_before(text, end);
      out.append(text, begin, end - begin);
      end = begin;
    }
    return make_text_like(v, std::move(out));
  }
  const bool listed = v.sequence() && !v.sequence()->has_length();
  Values items = items_of(run, v)->items;
  std::reverse(items.begin(), items.end());
  return make_sequence(run, listed ? Form::list : Form::generator, std::move(items));
}

Value otherwise(Run&, const Bound& a) {
  const bool missing = a.at(0).is_undefined() || (a.flag(2, false) && !truth(a.at(0)));
  return !missing ? a.at(0) : a[1] ? a.at(1) : Value("");
}

const Dict& dict_of(Run& run, const Value& value) {
  if (!value.dict()) run.fail("expected a mapping, got '" + type_name(value) + "'");
  return *value.dict();
}

Value items(Run& run, const Bound& a) {
  Values pairs;
  if (a.at(0).is_undefined()) return make_sequence(run, Form::generator, {});
  for (const auto& [key, value] : dict_of(run, a.at(0)).entries) pairs.push_back(make_sequence(run, Form::tuple, {key, value}));
  return make_sequence(run, Form::generator, std::move(pairs));
}

struct Keyed {
  Value key, item;
};

Values sorted(Run& run, List<Keyed> keyed, bool reversed) {
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const Keyed& x, const Keyed& y) { return reversed ? less(run, y.key, x.key) : less(run, x.key, y.key); });
  Values out;
  for (Keyed& k : keyed) out.push_back(std::move(k.item));
  return out;
}

Value dict_sort(Run& run, const Bound& a) {
  const String by = a.text(run, 2, "key");
  if (by != "key" && by != "value") run.fail("You can only sort by either \"key\" or \"value\"");
  List<Keyed> keyed;
  for (const auto& [key, value] : dict_of(run, a.at(0)).entries) {
    keyed.push_back({without_case(run, by == "key" ? key : value, a.flag(1, false)), make_sequence(run, Form::tuple, {key, value})});
  }
  return make_list(run, sorted(run, std::move(keyed), a.flag(3, false)));
}

// Returns the sort key of an item. `attributes` is a text such as "a,b.c": the key consists of the item's values for these attributes.
Value sort_key(Run& run, const Value& item, const Value& attributes, bool case_sensitive) {
  Values keys;
  if (!attributes.text()) {
    keys.push_back(without_case(run, follow(run, item, attributes), case_sensitive));
  } else {
    std::string_view rest = *attributes.text();
    while (true) {
      const size_t comma = rest.find(',');
      keys.push_back(without_case(run, follow(run, item, rest.substr(0, comma)), case_sensitive));
      if (comma == rest.npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return make_list(run, std::move(keys));
}

Value sort(Run& run, const Bound& a) {
  List<Keyed> keyed;
  const Value attributes = a[3] ? a.at(3) : Value(None{});
  for (const auto all = items_of(run, a.at(0)); const Value& item : all->items)
    keyed.push_back({sort_key(run, item, attributes, a.flag(2, false)), item});
  return make_list(run, sorted(run, std::move(keyed), a.flag(1, false)));
}

// Returns the items with their comparison keys. The arguments `a` are the items, case_sensitive and attribute.
List<Keyed> keyed_items(Run& run, const Bound& a) {
  List<Keyed> keyed;
  const Value attribute = a[2] ? a.at(2) : Value(None{});
  for (const auto all = items_of(run, a.at(0)); const Value& item : all->items)
    keyed.push_back({without_case(run, follow(run, item, attribute), a.flag(1, false)), item});
  return keyed;
}

Value unique(Run& run, const Bound& a) {
  std::set<String, std::less<>, Metered<String>> seen;
  Values out;
  for (Keyed& k : keyed_items(run, a)) {
    if (seen.insert(hash_key(run, k.key)).second) out.push_back(std::move(k.item));
  }
  return make_sequence(run, Form::generator, std::move(out));
}

template <bool largest>
Value extreme(Run& run, const Bound& a) {
  const auto keyed = keyed_items(run, a);
  if (keyed.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const Keyed* best = &keyed.front();
  for (const Keyed& k : keyed) {
    if (&k != &keyed.front() && (largest ? less(run, best->key, k.key) : less(run, k.key, best->key))) best = &k;
  }
  return best->item;
}

Value sum(Run& run, const Bound& a) {
  Value total = a[2] ? a.at(2) : Value(i64{0});
  if (total.text()) run.fail("sum() can't sum strings");
  for (const auto all = items_of(run, a.at(0)); const Value& item : all->items) {
    total = apply(run, Operator::add, total, a.has(1) ? follow(run, item, a.at(1)) : item);
  }
  return total;
}

i64 positive(Run& run, const Bound& a, size_t i) {
  const i64 n = a.whole(run, i, 0);
  if (n < 1 || n > 1'000'000) run.fail(fmt::format("expected a count from 1 to 1000000, got {}", n));
  return n;
}

Value batch(Run& run, const Bound& a) {
  const auto count = static_cast<size_t>(positive(run, a, 1));
  const auto all = items_of(run, a.at(0));
  Values out;
  for (size_t begin = 0; begin < all->items.size(); begin += count) {
    Values part;
    for (size_t i = begin; i < std::min(begin + count, all->items.size()); ++i) part.push_back(all->items[i]);
    if (a.has(2)) part.resize(count, a.at(2));
    out.push_back(make_list(run, std::move(part)));
  }
  return make_sequence(run, Form::generator, std::move(out));
}

Value slice(Run& run, const Bound& a) {
  const auto slices = static_cast<size_t>(positive(run, a, 1));
  const auto all = items_of(run, a.at(0));
  const size_t each = all->items.size() / slices, longer = all->items.size() % slices;
  Values out;
  size_t begin = 0;
  for (size_t n = 0; n < slices; ++n) {
    const size_t end = begin + each + (n < longer ? 1 : 0);
    Values part(all->items.begin() + static_cast<std::ptrdiff_t>(begin), all->items.begin() + static_cast<std::ptrdiff_t>(end));
    if (a.has(2) && n >= longer) part.push_back(a.at(2));
    out.push_back(make_list(run, std::move(part)));
    begin = end;
  }
  return make_sequence(run, Form::generator, std::move(out));
}

Value group_by(Run& run, const Bound& a) {
  const Value* fallback = a[2];
  const bool case_sensitive = a.flag(3, false);
  const auto key_of = [&](const Value& item) { return follow(run, item, a.at(1), fallback); };
  List<Keyed> keyed;
  for (const auto all = items_of(run, a.at(0)); const Value& item : all->items)
    keyed.push_back({without_case(run, key_of(item), case_sensitive), item});
  Values out, group;
  const auto close = [&] {
    if (!group.empty()) out.push_back(make_sequence(run, Form::group, {key_of(group.front()), make_list(run, std::exchange(group, {}))}));
  };
  Value last_key;
  for (Value& item : sorted(run, std::move(keyed), false)) {
    const Value key = without_case(run, key_of(item), case_sensitive);
    if (!group.empty() && !equal(run, key, last_key)) close();
    last_key = key;
    group.push_back(std::move(item));
  }
  close();
  return make_list(run, std::move(out));
}

const Builtin kListFilters[] = {
    {"batch", {"value", "linecount", "fill_with"}, 2, batch},
    {"count", {""}, 1, length},
    {"d", {"value", "default_value", "boolean"}, 1, otherwise},
    {"default", {"value", "default_value", "boolean"}, 1, otherwise},
    {"dictsort", {"value", "case_sensitive", "by", "reverse"}, 1, dict_sort},
    {"first", {"seq"}, 1, first},
    {"groupby", {"value", "attribute", "default", "case_sensitive"}, 2, group_by},
    {"items", {"value"}, 1, items},
    {"last", {"seq"}, 1, last},
    {"length", {""}, 1, length},
    {"list", {"value"}, 1, list},
    {"max", {"value", "case_sensitive", "attribute"}, 1, extreme<true>},
    {"min", {"value", "case_sensitive", "attribute"}, 1, extreme<false>},
    {"reverse", {"value"}, 1, reverse},
    {"slice", {"value", "slices", "fill_with"}, 2, slice},
    {"sort", {"value", "reverse", "case_sensitive", "attribute"}, 1, sort},
    {"sum", {"iterable", "attribute", "start"}, 1, sum},
    {"unique", {"value", "case_sensitive", "attribute"}, 1, unique},
};

}  // namespace

std::span<const Builtin> list_filters() { return kListFilters; }

}  // namespace spillway::data::chat
