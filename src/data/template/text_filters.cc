// Implements the filters that return a text. Their input may be any value, which is converted to text.
#include <fmt/format.h>

#include <algorithm>

#include "data/template/access.h"
#include "data/template/values/builtins.h"
#include "data/template/values/markup.h"
#include "data/template/values/operators.h"
#include "data/template/values/print_value.h"
#include "data/template/values/text_methods.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

template <std::string (*change)(std::string_view)>
Value changed(Run& run, const Bound& a) {
  const String text = to_text(run, a.at(0));
  run.spend_letters(text.size());
  return make_text_like(a.at(0), String(change(text)));
}

// Implements Jinja's own `title` filter, in which a word begins after white space or after one of - ( { [ <.
String jinja_title(std::string_view text) {
  const auto parts_words = [](char32_t c) { return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; };
  String out;
  for (size_t begin = 0; begin < text.size();) {
    const bool between = parts_words(code_point_at(text, begin));
    size_t end = begin;
    while (end < text.size() && parts_words(code_point_at(text, end)) == between) end += code_point_bytes(text, end);
    const size_t first = code_point_bytes(text, begin);
    out += upper(text.substr(begin, first)) + lower(text.substr(begin + first, end - begin - first));
    begin = end;
  }
  return out;
}

Value title_of(Run& run, const Bound& a) {
  const String text = to_text(run, a.at(0));
  run.spend_letters(text.size());
  return jinja_title(text);
}

Value escaped(Run& run, const Bound& a) { return escape(run, a.at(0)); }

Value escaped_again(Run& run, const Bound& a) { return escape(run, Value(to_text(run, a.at(0)))); }

Value safe(Run& run, const Bound& a) { return make_markup(to_text(run, a.at(0))); }

Value trim(Run& run, const Bound& a) {
  const Value stripped = strip_text(run, to_text(run, a.at(0)), a.has(1) ? &a.text(run, 1) : nullptr, 0);
  return make_text_like(a.at(0), *stripped.text());
}

Value replace(Run& run, const Bound& a) {
  const i64 most = a.has(3) ? a.whole(run, 3, -1) : -1;
  return replace_text(run, to_text(run, a.at(0)), to_text(run, a.at(1)), to_text(run, a.at(2)), most);
}

Value center(Run& run, const Bound& a) {
  return make_text_like(a.at(0), pad_text(run, to_text(run, a.at(0)), a.whole(run, 1, 80), " ", 0));
}

Value indent(Run& run, const Bound& a) {
  const String& text = a.text(run, 0);
  String before;
  if (a[1] && a[1]->is_markup() && !a[0]->is_markup()) run.fail("expected a plain text as indent's width, got Markup");
  if (a[1] && a[1]->text()) {
    before = *a[1]->text();
  } else {
    before = repeated(run, " ", a.whole(run, 1, 4));
  }
  const bool first = a.flag(2, false), blank = a.flag(3, false);
  const Values lines = split_lines(run, text + "\n", false);
  String out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const String& line = *lines[i].text();
    run.spend_bytes(before.size() + line.size());
    if (i > 0) out += "\n";
    if (i == 0 ? first : (blank || !line.empty())) out += before;
    out += line;
  }
  return make_text_like(a.at(0), std::move(out));
}

Value truncate(Run& run, const Bound& a) {
  if (a.at(0).is_undefined()) return a.at(0);
  const String &text = a.text(run, 0), end = a.text(run, 3, "...");
  const i64 length = a.whole(run, 1, 255), leeway = a.has(4) ? a.whole(run, 4, 5) : 5;
  const i64 of_end = static_cast<i64>(code_point_count(end));
  if (length < of_end) run.fail(fmt::format("expected length >= {}, got {}", of_end, length));
  if (leeway < 0) run.fail(fmt::format("expected leeway >= 0, got {}", leeway));
  const auto size = static_cast<i64>(code_point_count(text));
  if (size <= length || size - length <= leeway) return a.at(0);
  String cut = text.substr(0, code_point_offset(text, static_cast<size_t>(length - of_end)));
  if (!a.flag(2, false)) cut = cut.substr(0, cut.rfind(' '));
  return apply(run, Operator::add, make_text_like(a.at(0), std::move(cut)), a[3] ? a.at(3) : Value(end));
}

Value word_count(Run& run, const Bound& a) {
  const String text = to_text(run, a.at(0));
  run.spend_letters(text.size());
  i64 words = 0;
  bool inside = false;
  for (const char32_t c : CodePoints(text)) {
    words += !inside && is_word(c) ? 1 : 0;
    inside = is_word(c);
  }
  return words;
}

String url_quoted(Run& run, const Value& value, bool in_query) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  const String text = to_text(run, value);
  run.spend_letters(text.size());
  String out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' ||
                       c == '~' || (c == '/' && !in_query);
    if (plain) {
      out += c;
    } else if (in_query && c == ' ') {
      out += '+';
    } else {
      const auto byte = static_cast<u8>(c);
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

Value url_encode(Run& run, const Bound& a) {
  const Value& value = a.at(0);
  if (value.text() || (!value.sequence() && !value.dict() && !value.range())) return url_quoted(run, value, false);
  String out;
  const auto add = [&](const Value& key, const Value& item) {
    if (!out.empty()) out += '&';
    out += url_quoted(run, key, true) + "=" + url_quoted(run, item, true);
  };
  if (value.dict()) {
    for (const auto& [key, item] : value.dict()->entries) add(key, item);
  } else {
    for (const auto all = items_of(run, value); const Value& item : all->items) {
      const auto pair = items_of(run, item);
      if (pair->items.size() != 2) run.fail("expected pairs of a key and a value for urlencode, got an item of another length");
      add(pair->items[0], pair->items[1]);
    }
  }
  return out;
}

Value join(Run& run, const Bound& a) {
  Values items = items_of(run, a.at(0))->items;
  if (a.has(2)) {
    for (Value& item : items) item = follow(run, item, a.at(2));
  }
  return join_texts(run, a[1] ? to_text(run, a.at(1)) : String(), items);
}

Value as_text(Run& run, const Bound& a) { return a.at(0).text() ? a.at(0) : to_text(run, a.at(0)); }

String json_separator(Run& run, const Value& pair, size_t i) {
  const auto parts = items_of(run, pair);
  if (parts->items.size() != 2 || !parts->items[i].text()) run.fail("expected two texts as the separators of tojson, got something else");
  return *parts->items[i].text();
}

Value to_json(Run& run, const Bound& a) {
  JsonStyle style;
  style.ascii = a.flag(1, false);
  style.sorted = a.flag(4, false);
  if (a.has(2)) {
    if (a[2]->text()) {
      style.indent = *a[2]->text();
    } else {
      style.indent = repeated(run, " ", a.whole(run, 2, 0));
    }
    style.comma = ",";
  }
  if (a.has(3)) {
    style.comma = json_separator(run, *a[3], 0);
    style.colon = json_separator(run, *a[3], 1);
  }
  String out;
  append_json(run, out, a.at(0), style);
  return out;
}

const Builtin kTextFilters[] = {
    {"capitalize", {"s"}, 1, changed<capitalize>},
    {"center", {"value", "width"}, 1, center},
    {"e", {"s"}, 1, escaped},
    {"escape", {"s"}, 1, escaped},
    {"forceescape", {"value"}, 1, escaped_again},
    {"indent", {"s", "width", "first", "blank"}, 1, indent},
    {"join", {"value", "d", "attribute"}, 1, join},
    {"lower", {"s"}, 1, changed<lower>},
    {"replace", {"s", "old", "new", "count"}, 3, replace},
    {"safe", {"value"}, 1, safe},
    {"string", {"s"}, 1, as_text},
    {"title", {"s"}, 1, title_of},
    {"tojson", {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1, to_json},
    {"trim", {"value", "chars"}, 1, trim},
    {"truncate", {"s", "length", "killwords", "end", "leeway"}, 1, truncate},
    {"upper", {"s"}, 1, changed<upper>},
    {"urlencode", {"value"}, 1, url_encode},
    {"wordcount", {"s"}, 1, word_count},
};

}  // namespace

std::span<const Builtin> text_filters() { return kTextFilters; }

}  // namespace spillway::data::chat
