#include "data/template/values/text_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "data/template/values/markup.h"
#include "data/template/values/print_value.h"
#include "data/template/values/text_methods.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

constexpr i64 kWidest = 1'000'000;

struct Spec {
  char32_t fill = ' ';
  char align = '\0', sign = '\0', type = '\0';
  bool alternate = false, commas = false;
  i64 width = 0, precision = -1;
};

String padded(Run& run, std::string_view body, const Spec& spec, char natural) {
  const auto have = static_cast<i64>(code_point_count(body));
  if (have >= spec.width) return String(body);
  std::string fill;
  append_utf8(fill, spec.fill);
  const char align = spec.align == '\0' ? natural : spec.align;
  const i64 missing = spec.width - have, left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  if (align == '=') {
    const size_t sign = !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' ') ? 1 : 0;
    return String(body.substr(0, sign)).append(repeated(run, fill, missing)).append(body.substr(sign));
  }
  return repeated(run, fill, left).append(body).append(repeated(run, fill, missing - left));
}

std::string with_sign(std::string digits, bool negative, const Spec& spec) {
  if (negative) return "-" + digits;
  return (spec.sign == '+' || spec.sign == ' ' ? std::string(1, spec.sign) : "") + digits;
}

void put_commas(std::string& digits) {
  const size_t end = std::min(digits.find('.'), digits.size());
  for (size_t i = end; i > 3; i -= 3) digits.insert(i - 3, ",");
}

std::string whole_digits(i64 n, char type, bool alternate) {
  const u64 size = n < 0 ? u64{0} - static_cast<u64>(n) : static_cast<u64>(n);
  switch (type) {
    case 'x':
      return fmt::format("{}{:x}", alternate ? "0x" : "", size);
    case 'X':
      return fmt::format("{}{:X}", alternate ? "0X" : "", size);
    case 'o':
      return fmt::format("{}{:o}", alternate ? "0o" : "", size);
    case 'b':
      return fmt::format("{}{:b}", alternate ? "0b" : "", size);
    default:
      return std::to_string(size);
  }
}

std::string real_digits(Run& run, double d, const Spec& spec) {
  const char type = spec.type == '%' ? 'f' : spec.type;
  const bool capitals = type >= 'A' && type <= 'Z';
  if (std::isnan(d)) return capitals ? "NAN" : "nan";
  if (std::isinf(d)) return capitals ? "INF" : "inf";
  if (spec.precision > 400) run.fail("expected at most 400 digits after the decimal point in a format, got more");
  const char form[] = {'%', '.', '*', type, '\0'};
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  std::string digits(1000, '\0');
  int length = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  length = std::snprintf(digits.data(), digits.size(), form, precision, std::fabs(d));
#pragma GCC diagnostic pop
  digits.resize(static_cast<size_t>(std::clamp(length, 0, 999)));
  return digits;
}

std::string formatted_number(Run& run, const Value& value, const Spec& spec, const char* types_of_whole) {
  const auto whole = value.whole();
  if (whole && (spec.type == '\0' || std::string_view(types_of_whole).find(spec.type) != std::string_view::npos)) {
    std::string digits = whole_digits(*whole, spec.type, spec.alternate);
    if (spec.commas) put_commas(digits);
    return with_sign(std::move(digits), *whole < 0, spec);
  }
  if (std::string_view("fFeEgG%").find(spec.type) == std::string_view::npos || !value.number() || spec.alternate)
    run.fail(fmt::format("expected a format for a value of type '{}', got the format '{}'", type_name(value), spec.type));
  const double d = spec.type == '%' ? *value.number() * 100 : *value.number();
  std::string digits = real_digits(run, d, spec);
  if (spec.commas) put_commas(digits);
  return with_sign(std::move(digits), std::signbit(d) && !std::isnan(d), spec) + (spec.type == '%' ? "%" : "");
}

std::string_view cut(std::string_view text, i64 precision) {
  return precision < 0 ? text : text.substr(0, code_point_offset(text, static_cast<size_t>(precision)));
}

class Reader {
 public:
  Reader(Run& run, std::string_view format) : run_(run), format_(format) {}
  bool done() const { return at_ >= format_.size(); }
  char peek() const { return done() ? '\0' : format_[at_]; }
  char take() { return done() ? '\0' : format_[at_++]; }
  bool skip(char c) {
    if (done() || peek() != c) return false;
    ++at_;
    return true;
  }
  i64 number() {
    i64 n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + (take() - '0');
      if (n > kWidest) run_.fail("expected a width of at most 1000000 in a format, got a larger one");
    }
    return n;
  }
  std::string_view until(char end) {
    const size_t found = format_.find(end, at_);
    if (found == format_.npos) run_.fail("incomplete format");
    const std::string_view text = format_.substr(at_, found - at_);
    at_ = found + 1;
    return text;
  }
  void go(size_t bytes) { at_ += bytes; }

 private:
  Run& run_;
  const std::string_view format_;
  size_t at_ = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(Run& run, const Value& format, const Value& right)
      : run_(run), reader_(run, *format.text()), right_(right), escapes_(format.is_markup()) {
    const Sequence* s = right.sequence();
    if (s && s->is_tuple()) {
      values_ = s->items;
    } else {
      values_ = {right};
    }
    // Python treats every value that can be indexed, except a text, as a
    // mapping. With a mapping on the right, Python accepts unused values.
    may_be_left_ = right.dict() || right.is_undefined() || right.range() || (s && s->is_list());
  }

  String all() {
    String out;
    while (!reader_.done()) {
      const char c = reader_.take();
      if (c == '%') {
        out += one();
      } else {
        out += c;
      }
    }
    if (used_ < values_.size() && !may_be_left_) run_.fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  const Value& next() {
    if (used_ == values_.size()) run_.fail("not enough arguments for format string");
    return values_[used_++];
  }

  String one() {
    Value value;
    bool named = false;
    if (reader_.skip('(')) {
      const std::string_view key = reader_.until(')');
      if (!right_.dict()) run_.fail("format requires a mapping");
      const Value* found = right_.dict()->find(key);
      if (!found) run_.fail(fmt::format("expected a value for the key '{}' of the format, got none", key));
      value = *found;
      named = true;
    }
    Spec spec;
    bool left = false, zero = false;
    for (bool flags = true; flags;) {
      if (reader_.skip('-')) {
        left = true;
      } else if (reader_.skip('0')) {
        zero = true;
      } else if (reader_.skip('#')) {
        spec.alternate = true;
      } else if (reader_.peek() == '+' || (reader_.peek() == ' ' && spec.sign == '\0')) {
        spec.sign = reader_.take();
      } else if (!reader_.skip(' ')) {
        flags = false;
      }
    }
    spec.width = reader_.number();
    if (reader_.skip('.')) spec.precision = reader_.number();
    const char type = reader_.take();
    if (type == '\0') run_.fail("incomplete format");
    if (type == '%') return "%";
    if (!named) value = next();
    spec.align = left ? '<' : '\0';
    if (type == 's' || type == 'r') {
      String text;
      type == 's' ? append_text(run_, text, value) : append_repr(run_, text, value);
      if (escapes_ && !(type == 's' && value.is_markup())) text = *escape(run_, std::move(text)).text();
      return padded(run_, cut(text, spec.precision), spec, '>');
    }
    if (std::string_view("diuxXofFeEgG").find(type) == std::string_view::npos)
      run_.fail(fmt::format("unsupported format character '{}'", type));
    return padded(run_, number(value, type, spec, zero && !left), spec, '>');
  }

  std::string number(Value value, char type, Spec& spec, bool zero) {
    if (!value.number()) run_.fail(fmt::format("%{} format: a real number is required, not {}", type, type_name(value)));
    if (escapes_ && (type == 'x' || type == 'X' || type == 'o'))
      run_.fail(fmt::format("%{} format: an integer is required, not a value that Markup escapes", type));
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (decimal && value.real()) {
      if (!fits_64_bits(*value.real())) run_.fail("expected whole numbers that fit in 64 bits, got a larger one for %d");
      value = static_cast<i64>(*value.real());
    }
    if (decimal && spec.precision >= 0) run_.fail("expected %d without a precision, got one with a precision");
    spec.type = decimal ? 'd' : type;
    if (zero) {
      spec.fill = '0';
      spec.align = '=';
    }
    return formatted_number(run_, value, spec, "dxXo");
  }

  Run& run_;
  Reader reader_;
  const Value& right_;
  const bool escapes_;
  Values values_;
  size_t used_ = 0;
  bool may_be_left_ = false;
};

class BraceFormatter {
 public:
  BraceFormatter(Run& run, const Value& format, const Arguments& arguments)
      : run_(run), reader_(run, *format.text()), arguments_(arguments), escapes_(format.is_markup()) {}

  String all() {
    String out;
    while (!reader_.done()) {
      const char c = reader_.take();
      if ((c == '{' || c == '}') && reader_.skip(c)) {
        out += c;
      } else if (c == '{') {
        out += one(reader_.until('}'));
      } else if (c == '}') {
        run_.fail("Single '}' encountered in format string");
      } else {
        out += c;
      }
    }
    return out;
  }

 private:
  const Value& value(std::string_view field) {
    if (field.empty() || std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      if (field.size() > 6) run_.fail("Replacement index out of range");
      const size_t i = field.empty() ? next_++ : static_cast<size_t>(std::stoul(std::string(field)));
      (field.empty() ? automatic_ : manual_) = true;
      if (automatic_ && manual_) run_.fail("cannot switch between automatic field numbering and manual field specification");
      if (i >= arguments_.plain.size()) run_.fail("Replacement index " + std::to_string(i) + " out of range for positional args tuple");
      return arguments_.plain[i];
    }
    if (field.find_first_of(".[") != field.npos) run_.fail(fmt::format("expected a plain name or number inside {{}}, got '{}'", field));
    run_.spend(static_cast<i64>(arguments_.named.size() / kScannedInAStep));
    for (const auto& [name, given] : arguments_.named) {
      if (name == field) return given;
    }
    run_.fail(fmt::format("expected a value for {{{}}} in the format, got none", field));
  }

  String one(std::string_view inside) {
    if (inside.find('{') != inside.npos) run_.fail("expected plain formats in {}, got nested ones");
    const size_t colon = std::min(inside.find(':'), inside.size()), mark = std::min(inside.find('!'), colon);
    Value shown = value(inside.substr(0, mark));
    if (mark < colon) {
      const std::string_view conversion = inside.substr(mark + 1, colon - mark - 1);
      if (conversion != "r" && conversion != "s") run_.fail(fmt::format("expected !r or !s in {{}}, got !{}", conversion));
      String text;
      conversion == "s" ? append_text(run_, text, shown) : append_repr(run_, text, shown);
      shown = std::move(text);
    }
    const std::string_view format = colon < inside.size() ? inside.substr(colon + 1) : "";
    if (!escapes_) return apply(shown, format);
    if (shown.is_markup() && !format.empty()) run_.fail("Unsupported format specification for Markup.");
    return shown.is_markup() ? *shown.text() : *escape(run_, apply(shown, format)).text();
  }

  String apply(const Value& shown, std::string_view format) {
    if (format.empty()) return to_text(run_, shown);
    Reader reader(run_, format);
    Spec spec;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    const size_t first = code_point_bytes(format, 0);
    if (first < format.size() && is_align(format[first])) {
      spec.fill = code_point_at(format, 0);
      reader.go(first);
    }
    if (is_align(reader.peek())) spec.align = reader.take();
    if (reader.peek() == '+' || reader.peek() == '-' || reader.peek() == ' ') spec.sign = reader.take();
    spec.alternate = reader.skip('#');
    if (reader.skip('0') && spec.align == '\0') {
      spec.fill = '0';
      spec.align = shown.number() ? '=' : '<';
    }
    spec.width = reader.number();
    spec.commas = reader.skip(',');
    if (reader.skip('.')) spec.precision = reader.number();
    spec.type = reader.take();
    if (!reader.done()) run_.fail(fmt::format("Invalid format specifier '{}'", format));
    if (shown.text()) {
      if ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.sign != '\0' || spec.alternate || spec.commas)
        run_.fail(fmt::format("expected a format for a text, got '{}'", format));
      return padded(run_, cut(*shown.text(), spec.precision), spec, '<');
    }
    if (!shown.number() || (shown.boolean() && spec.type == '\0') ||
        (shown.real() && spec.type == '\0' && (spec.precision >= 0 || spec.commas)) || (spec.commas && spec.fill == '0') ||
        (shown.whole() && spec.precision >= 0 && std::string_view("fFeEgG%").find(spec.type) == std::string_view::npos))
      run_.fail(fmt::format("expected a format for a value of type '{}', got the format '{}'", type_name(shown), format));
    if (shown.real() && spec.type == '\0') {
      const std::string digits = float_repr(std::fabs(*shown.real()));
      return padded(run_, with_sign(digits, std::signbit(*shown.real()), spec), spec, '>');
    }
    return padded(run_, formatted_number(run_, shown, spec, "dxXob"), spec, '>');
  }

  Run& run_;
  Reader reader_;
  const Arguments& arguments_;
  const bool escapes_;
  size_t next_ = 0;
  bool automatic_ = false, manual_ = false;
};

}  // namespace

Value percent_format(Run& run, const Value& format, const Value& right) {
  run.spend_letters(format.text()->size());
  return make_text_like(format, PercentFormatter(run, format, right).all());
}

Value brace_format(Run& run, const Value& format, const Arguments& arguments) {
  run.spend_letters(format.text()->size());
  return make_text_like(format, BraceFormatter(run, format, arguments).all());
}

}  // namespace spillway::data::chat
