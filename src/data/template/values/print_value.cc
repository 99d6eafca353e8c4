#include "data/template/values/print_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "data/template/values/operators.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

void append_repr_of_text(String& out, std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < text.size(); i += code_point_bytes(text, i)) {
    const char32_t c = code_point_at(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else {
      const auto n = static_cast<u32>(c);
      out += c < 0x100 ? fmt::format("\\x{:02x}", n) : c < 0x10000 ? fmt::format("\\u{:04x}", n) : fmt::format("\\U{:08x}", n);
    }
  }
  out += quote;
}

void append_json_text(String& out, std::string_view text, bool ascii) {
  out += '"';
  for (size_t i = 0; i < text.size(); i += code_point_bytes(text, i)) {
    const char32_t c = code_point_at(text, i);
    constexpr std::string_view kNamed = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
    if (const size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : kNamed.npos; named != kNamed.npos) {
      out += '\\';
      out += kNames[named];
    } else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) {
      out += fmt::format("\\u{:04x}", static_cast<u32>(c));
    } else if (ascii && c >= 0x10000) {
      const u32 rest = static_cast<u32>(c) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      append_utf8(out, c);
    }
  }
  out += '"';
}

std::string json_number(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
  return float_repr(d);
}

String json_key(const Run& run, const Value& key) {
  if (key.text()) return *key.text();
  if (key.is_none()) return "null";
  if (key.boolean()) return *key.boolean() ? "true" : "false";
  if (key.integer()) return String(std::to_string(*key.integer()));
  if (key.real()) return String(json_number(*key.real()));
  run.fail("keys must be str, int, float, bool or None, not " + type_name(key));
}

class JsonPrinter {
 public:
  JsonPrinter(Run& run, String& out, const JsonStyle& style) : run_(run), out_(out), style_(style) {}

  void append(const Value& value) {
    run_.spend();
    if (value.is_none()) {
      out_ += "null";
    } else if (value.boolean()) {
      out_ += *value.boolean() ? "true" : "false";
    } else if (value.integer()) {
      out_ += std::to_string(*value.integer());
    } else if (value.real()) {
      out_ += json_number(*value.real());
    } else if (value.text()) {
      run_.spend_letters(value.text()->size());
      append_json_text(out_, *value.text(), style_.ascii);
    } else if (const Sequence* s = value.sequence(); s && s->has_index()) {
      print_list(*s);
    } else if (value.dict()) {
      print_dict(*value.dict());
    } else {
      run_.fail("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

 private:
  void print_list(const Sequence& list) {
    print_items('[', ']', list.items.size(), [&](size_t i) { append(list.items[i]); });
  }

  void print_dict(const Dict& dict) {
    List<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sorted) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) { return less(run_, a->first, b->first); });
    }
    print_items('{', '}', entries.size(), [&](size_t i) {
      const String key = json_key(run_, entries[i]->first);
      run_.spend_letters(key.size());
      append_json_text(out_, key, style_.ascii);
      out_ += style_.colon;
      append(entries[i]->second);
    });
  }

  void print_items(char open, char close, size_t count, auto&& item) {
    out_ += open;
    if (count > 0) {
      ++level_;
      for (size_t i = 0; i < count; ++i) {
        if (i > 0) out_ += style_.comma;
        new_line();
        item(i);
      }
      --level_;
      new_line();
    }
    out_ += close;
  }

  void new_line() {
    if (!style_.indent) return;
    out_ += '\n';
    run_.spend_bytes(style_.indent->size() * static_cast<size_t>(level_));
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  Run& run_;
  String& out_;
  const JsonStyle& style_;
  int level_ = 0;
};

void append_items(Run& run, String& out, const char* open, const Values& items, const char* close) {
  out += open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(run, out, items[i]);
  }
  out += close;
}

void append_sequence(Run& run, String& out, const Sequence& s) {
  switch (s.form) {
    case Form::list:
      return append_items(run, out, "[", s.items, "]");
    case Form::tuple:
    case Form::group:
      return append_items(run, out, "(", s.items, s.items.size() == 1 ? ",)" : ")");
    case Form::keys:
      return append_items(run, out, "dict_keys([", s.items, "])");
    case Form::values:
      return append_items(run, out, "dict_values([", s.items, "])");
    case Form::items:
      return append_items(run, out, "dict_items([", s.items, "])");
    case Form::generator:
      run.fail("expected a value that can be printed, got a generator: put `| list` or `| join` after the filter");
  }
}

}  // namespace

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t e = shortest.find('e');
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  if (exponent >= -4 && exponent < 16) {
    std::string digits;
    for (const char c : shortest.substr(0, e)) {
      if (c != '.' && c != '-') digits += c;
    }
    const std::string sign = shortest.starts_with('-') ? "-" : "";
    if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
    return sign + digits.substr(0, whole) + "." + digits.substr(whole);
  }
  return fmt::format("{}e{}{:02}", shortest.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
}

String to_text(Run& run, const Value& value) {
  String out;
  append_text(run, out, value);
  return out;
}

void append_text(Run& run, String& out, const Value& value) {
  if (value.is_undefined()) return;
  if (value.text()) {
    run.spend_bytes(value.text()->size());
    out += *value.text();
  } else {
    append_repr(run, out, value);
  }
}

void append_repr(Run& run, String& out, const Value& value) {
  run.spend();
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_none()) {
    out += "None";
  } else if (value.boolean()) {
    out += *value.boolean() ? "True" : "False";
  } else if (value.integer()) {
    out += std::to_string(*value.integer());
  } else if (value.real()) {
    out += float_repr(*value.real());
  } else if (value.text()) {
    run.spend_letters(value.text()->size());
    if (value.is_markup()) out += "Markup(";
    append_repr_of_text(out, *value.text());
    if (value.is_markup()) out += ')';
  } else if (value.sequence()) {
    append_sequence(run, out, *value.sequence());
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    for (const auto& [key, item] : dict->entries) {
      if (&key != &dict->entries.front().first) out += ", ";
      append_repr(run, out, key);
      out += ": ";
      append_repr(run, out, item);
    }
    out += '}';
  } else if (const Range* r = value.range()) {
    out += r->step == 1 ? fmt::format("range({}, {})", r->start, r->stop) : fmt::format("range({}, {}, {})", r->start, r->stop, r->step);
  } else {
    run.fail("expected a value that can be printed, got a " + type_name(value));
  }
}

void append_json(Run& run, String& out, const Value& value, const JsonStyle& style) { JsonPrinter(run, out, style).append(value); }

}  // namespace spillway::data::chat
