#include "data/template/values/text_methods.h"

#include <algorithm>
#include <cstring>

#include "data/template/values/print_value.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

// The part of a text that the arguments start and stop (numbers 2 and 3) select, as
// in a slice. The part is empty if start is after stop or after the end of the text.
struct Window {
  std::string_view text;
  i64 begin = 0;  // index of the code point at which the selected part begins
  bool beyond = false;
};

Window window(Run& run, const Bound& a) {
  const String& text = *a.at(0).text();
  const auto size = static_cast<i64>(code_point_count(text));
  const auto given = [&](size_t i, i64 otherwise) { return a.has(i) ? a.whole(run, i, 0) : otherwise; };
  i64 begin = given(2, 0), end = std::min(given(3, size), size);
  if (begin < 0) begin = std::max<i64>(begin + size, 0);
  if (end < 0) end = std::max<i64>(end + size, 0);
  if (begin > end) return {"", begin, true};
  const size_t from = code_point_offset(text, static_cast<size_t>(begin));
  const size_t to = from + code_point_offset(std::string_view(text).substr(from), static_cast<size_t>(end - begin));
  return {std::string_view(text).substr(from, to - from), begin, false};
}

template <bool last>
i64 found_at(Run& run, const Bound& a) {
  const String& needle = a.text(run, 1);
  const Window in = window(run, a);
  if (in.beyond) return -1;
  const size_t at = last ? find_last(run, in.text, needle) : find_first(run, in.text, needle);
  return at == in.text.npos ? -1 : in.begin + static_cast<i64>(code_point_count(in.text.substr(0, at)));
}

template <bool last>
Value find(Run& run, const Bound& a) {
  return found_at<last>(run, a);
}

template <bool last>
Value index(Run& run, const Bound& a) {
  const i64 at = found_at<last>(run, a);
  if (at < 0) run.fail("substring not found");
  return at;
}

Value count(Run& run, const Bound& a) {
  const String& needle = a.text(run, 1);
  const Window in = window(run, a);
  if (in.beyond) return i64{0};
  if (needle.empty()) return static_cast<i64>(code_point_count(in.text)) + 1;
  i64 n = 0;
  for (size_t at = find_first(run, in.text, needle); at != in.text.npos; at = find_first(run, in.text, needle, at + needle.size())) ++n;
  return n;
}

template <bool at_end>
Value begins(Run& run, const Bound& a) {
  const Window in = window(run, a);
  const auto fits = [&](const Value& mark) {
    if (!mark.text()) run.fail("expected a text or a tuple of them for startswith or endswith, got " + type_name(mark));
    run.spend_bytes(std::min(in.text.size(), mark.text()->size()));
    return !in.beyond && (at_end ? in.text.ends_with(*mark.text()) : in.text.starts_with(*mark.text()));
  };
  const Sequence* marks = a.at(1).sequence();
  if (!marks || !marks->is_tuple()) return fits(a.at(1));
  return std::any_of(marks->items.begin(), marks->items.end(), fits);
}

template <int sides>
Value strip_method(Run& run, const Bound& a) {
  return strip_text(run, *a.at(0).text(), a.has(1) ? &a.text(run, 1) : nullptr, sides);
}

// Splits a text at white space, at most `most` times. Splitting begins at the left end, or, if `from_right` is true, at the right end.
List<std::string_view> split_at_spaces(Run& run, std::string_view text, i64 most, bool from_right) {
  run.spend_letters(text.size());
  List<std::string_view> parts;
  text = strip(text, from_right ? 1 : -1);
  while (!text.empty()) {
    if (most >= 0 && static_cast<i64>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    size_t edge = from_right ? text.size() : 0;
    if (from_right) {
      while (edge > 0) {
        const size_t before = code_point_before(text, edge);
        if (is_space(code_point_at(text, before))) break;
        edge = before;
      }
      parts.push_back(text.substr(edge));
      text = strip(text.substr(0, edge), 1);
    } else {
      while (edge < text.size() && !is_space(code_point_at(text, edge))) edge += code_point_bytes(text, edge);
      parts.push_back(text.substr(0, edge));
      text = strip(text.substr(edge), -1);
    }
  }
  return parts;
}

List<std::string_view> split_at(Run& run, std::string_view text, std::string_view mark, i64 most, bool from_right) {
  List<std::string_view> parts;
  while (most < 0 || static_cast<i64>(parts.size()) < most) {
    const size_t at = from_right ? find_last(run, text, mark) : find_first(run, text, mark);
    if (at == text.npos) break;
    parts.push_back(from_right ? text.substr(at + mark.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + mark.size());
  }
  parts.push_back(text);
  return parts;
}

template <bool from_right>
Value split(Run& run, const Bound& a) {
  const String& text = *a.at(0).text();
  const i64 most = a.whole(run, 2, -1);
  if (a.has(1) && a.text(run, 1).empty()) run.fail("empty separator");
  auto parts = a.has(1) ? split_at(run, text, a.text(run, 1), most, from_right) : split_at_spaces(run, text, most, from_right);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return make_list(run, Values(parts.begin(), parts.end()));
}

template <bool from_right>
Value partition(Run& run, const Bound& a) {
  const String &text = *a.at(0).text(), &mark = a.text(run, 1);
  if (mark.empty()) run.fail("empty separator");
  const size_t at = from_right ? find_last(run, text, mark) : find_first(run, text, mark);
  Values parts = from_right ? Values{"", "", a.at(0)} : Values{a.at(0), "", ""};
  if (at != text.npos) parts = {text.substr(0, at), mark, text.substr(at + mark.size())};
  return make_sequence(run, Form::tuple, std::move(parts));
}

Value replace_by_method(Run& run, const Bound& a) {
  return replace_text(run, *a.at(0).text(), a.text(run, 1), a.text(run, 2), a.whole(run, 3, -1));
}

Value remove_prefix(Run& run, const Bound& a) {
  const String &text = *a.at(0).text(), &mark = a.text(run, 1);
  return Value(text.starts_with(mark) ? text.substr(mark.size()) : text);
}

Value remove_suffix(Run& run, const Bound& a) {
  const String &text = *a.at(0).text(), &mark = a.text(run, 1);
  return Value(text.ends_with(mark) ? text.substr(0, text.size() - mark.size()) : text);
}

template <int side>
Value pad(Run& run, const Bound& a) {
  return pad_text(run, *a.at(0).text(), a.whole(run, 1, 0), a.text(run, 2, " "), side);
}

Value zfill(Run& run, const Bound& a) {
  const std::string_view text = *a.at(0).text();
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const i64 width = std::max<i64>(a.whole(run, 1, 0), 0);
  return String(text.substr(0, sign)) + pad_text(run, text.substr(sign), width - static_cast<i64>(sign), "0", 1);
}

Value join_by_method(Run& run, const Bound& a) {
  const auto items = items_of(run, a.at(1));
  for (const Value& item : items->items) {
    if (!item.text()) run.fail("sequence item: expected str instance, " + type_name(item) + " found");
  }
  return join_texts(run, *a.at(0).text(), items->items);
}

template <std::string (*change)(std::string_view)>
Value changed_by_method(Run& run, const Bound& a) {
  run.spend_letters(a.at(0).text()->size());
  return change(*a.at(0).text());
}

template <bool (*is)(char32_t)>
Value all_are(Run& run, const Bound& a) {
  const String& text = *a.at(0).text();
  run.spend_letters(text.size());
  return !text.empty() && std::ranges::all_of(CodePoints(text), is);
}

template <bool (*is)(char32_t), bool (*is_other)(char32_t)>
Value cased(Run& run, const Bound& a) {
  const CodePoints points(*a.at(0).text());
  run.spend_letters(a.at(0).text()->size());
  return std::ranges::any_of(points, is) && std::ranges::none_of(points, is_other);
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

Value lines(Run& run, const Bound& a) { return make_list(run, split_lines(run, *a.at(0).text(), a.flag(1, false))); }

const Builtin kMethods[] = {
    {"capitalize", {""}, 1, changed_by_method<capitalize>},
    {"center", {"", "", ""}, 2, pad<0>},
    {"count", {"", "", "", ""}, 2, count},
    {"endswith", {"", "", "", ""}, 2, begins<true>},
    {"find", {"", "", "", ""}, 2, find<false>},
    {"index", {"", "", "", ""}, 2, index<false>},
    {"isalnum", {""}, 1, all_are<is_alnum>},
    {"isalpha", {""}, 1, all_are<is_alpha>},
    {"isdecimal", {""}, 1, all_are<is_decimal>},
    {"isdigit", {""}, 1, all_are<is_digit>},
    {"islower", {""}, 1, cased<is_lower, is_upper>},
    {"isnumeric", {""}, 1, all_are<is_numeric>},
    {"isspace", {""}, 1, all_are<is_space>},
    {"isupper", {""}, 1, cased<is_upper, is_lower>},
    {"join", {"", ""}, 2, join_by_method},
    {"ljust", {"", "", ""}, 2, pad<-1>},
    {"lower", {""}, 1, changed_by_method<lower>},
    {"lstrip", {"", ""}, 1, strip_method<-1>},
    {"partition", {"", ""}, 2, partition<false>},
    {"removeprefix", {"", ""}, 2, remove_prefix},
    {"removesuffix", {"", ""}, 2, remove_suffix},
    {"replace", {"", "", "", ""}, 3, replace_by_method},
    {"rfind", {"", "", "", ""}, 2, find<true>},
    {"rindex", {"", "", "", ""}, 2, index<true>},
    {"rjust", {"", "", ""}, 2, pad<1>},
    {"rpartition", {"", ""}, 2, partition<true>},
    {"rsplit", {"", "sep", "maxsplit"}, 1, split<true>},
    {"rstrip", {"", ""}, 1, strip_method<1>},
    {"split", {"", "sep", "maxsplit"}, 1, split<false>},
    {"splitlines", {"", "keepends"}, 1, lines},
    {"startswith", {"", "", "", ""}, 2, begins<false>},
    {"strip", {"", ""}, 1, strip_method<0>},
    {"title", {""}, 1, changed_by_method<title>},
    {"upper", {""}, 1, changed_by_method<upper>},
    {"zfill", {"", ""}, 2, zfill},
};

bool ends_line(char32_t c) { return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029; }

}  // namespace

std::span<const Builtin> text_methods() { return kMethods; }

namespace {

// The longest wanted text, in bytes, that is searched for by comparing it at every
// position. For longer texts such a search could be slow, so memmem is used.
constexpr size_t kShort = 32;

size_t place_of(std::string_view text, std::string_view wanted) {
  if (wanted.size() <= kShort) return text.find(wanted);
  const void* found = ::memmem(text.data(), text.size(), wanted.data(), wanted.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.npos;
}

}  // namespace

size_t find_first(Run& run, std::string_view text, std::string_view wanted, size_t from) {
  const std::string_view rest = text.substr(std::min(from, text.size()));
  const size_t at = place_of(rest, wanted);
  run.spend_letters(std::min(at, rest.size()) + wanted.size());
  return at == rest.npos ? at : from + at;
}

size_t find_last(Run& run, std::string_view text, std::string_view wanted) {
  if (wanted.size() <= kShort) {
    const size_t at = text.rfind(wanted);
    run.spend_letters(text.size() - (at == text.npos ? 0 : at));
    return at;
  }
  const String turned(text.rbegin(), text.rend()), turned_wanted(wanted.rbegin(), wanted.rend());
  const size_t at = find_first(run, turned, turned_wanted);
  return at == text.npos ? text.npos : text.size() - at - wanted.size();
}

Value strip_text(Run& run, const String& text, const String* chars, int sides) {
  const std::string_view kept = chars ? strip(text, *chars, sides) : strip(text, sides);
  run.spend_letters(text.size() - kept.size() + (chars ? chars->size() : 0));
  return kept;
}

Values split_lines(Run& run, std::string_view text, bool keep_ends) {
  run.spend_letters(text.size());
  Values found;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = code_point_bytes(text, i);
    if (!ends_line(code_point_at(text, i))) {
      i += bytes;
      continue;
    }
    const size_t end = i;
    i += text[i] == '\r' && text.substr(i + 1).starts_with('\n') ? 2 : bytes;
    found.emplace_back(text.substr(begin, (keep_ends ? i : end) - begin));
    begin = i;
  }
  if (begin < text.size()) found.emplace_back(text.substr(begin));
  return found;
}

Value replace_text(Run& run, std::string_view text, std::string_view old, std::string_view by, i64 most) {
  String out;
  size_t from = 0;
  for (i64 done = 0; most < 0 || done < most; ++done) {
    // Python finds an empty `old` before each character and at the end of the text.
    const size_t at = old.empty() ? (done == 0            ? 0
                                     : from < text.size() ? from + code_point_bytes(text, from)
                                                          : text.npos)
                                  : find_first(run, text, old, from);
    if (at == text.npos) break;
    run.spend_bytes(by.size());
    out.append(text.substr(from, at - from)).append(by);
    from = at + old.size();
  }
  out.append(text.substr(from));
  return out;
}

String pad_text(Run& run, std::string_view text, i64 width, std::string_view fill, int side) {
  if (code_point_count(fill) != 1) run.fail("The fill character must be exactly one character long");
  const auto size = static_cast<i64>(code_point_count(text));
  if (width <= size) return String(text);
  const i64 missing = width - size;
  const i64 left = side < 0 ? 0 : side > 0 ? missing : missing / 2 + (missing & width & 1);
  return repeated(run, fill, left).append(text).append(repeated(run, fill, missing - left));
}

String repeated(Run& run, std::string_view text, i64 times) {
  size_t total = 0;
  if (__builtin_mul_overflow(text.size(), static_cast<size_t>(std::max<i64>(times, 0)), &total) || total > String().max_size())
    run.fail("expected a text that fits in memory, got a longer one from a repetition");
  String out;
  if (text.size() == 1) {
    out.append(total, text[0]);
    return out;
  }
  out.reserve(total);
  while (out.size() < total) out += text;
  return out;
}

Value join_texts(Run& run, std::string_view between, const Values& items) {
  String out;
  for (size_t i = 0; i < items.size(); ++i) {
    run.spend_bytes(between.size());
    if (i > 0) out += between;
    append_text(run, out, items[i]);
  }
  return out;
}

}  // namespace spillway::data::chat
