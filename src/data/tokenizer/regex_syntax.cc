// From Oniguruma's Ruby syntax to PCRE2's.
#include <cctype>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/regex.h"

namespace spillway::data {
namespace {

// The inside of classes. PCRE2's own \s has U+180E besides, its \w lacks marks and connectors.
constexpr std::string_view kSpaces = R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWords =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
// Superscripts and fractions of Latin-1: Oniguruma's \w has them outside of a class, and not within.
constexpr std::string_view kLatinNumbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHexDigits = "0-9a-fA-F";

class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where, const std::function<bool(const std::string&)>& knows_property)
      : pattern_(pattern), where_(where), knows_property_(knows_property) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        begin_atom();
        escape(false);
      } else if (c == '[') {
        begin_atom();
        character_class();
      } else if (c == '(') {
        open_group();
      } else if (c == ')') {
        if (!groups_.empty()) atom_ = groups_.back(), groups_.pop_back();
        out_ += pattern_[at_++];
      } else if (c == '{' && interval()) {
      } else {
        if (std::string_view("*+?|^$").find(c) == std::string_view::npos) begin_atom();
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::data, where_ + ": expected a regular expression that this program can run, got one with " + what + " at byte " +
                                     std::to_string(at_));
  }
  void begin_atom() {
    const bool within_character = (static_cast<unsigned char>(pattern_[at_]) & 0xC0) == 0x80;
    if (!within_character) atom_ = out_.size();
  }
  char peek(size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }

  static std::string in_brackets(std::string_view set, bool negated) { return std::string(negated ? "[^" : "[") + std::string(set) + "]"; }

  void set(std::string_view inside, bool in_class, bool negated) {
    if (!in_class) {
      out_ += in_brackets(std::string(inside) + std::string(inside == kWords ? kLatinNumbers : ""), negated);
    } else if (!negated) {
      out_ += inside;
    } else if (inside == kSpaces) {
      out_ += R"(\S\x{180e})";
    } else {
      refuse("a negated set within a class");
    }
  }

  void boundary(bool negated) {
    const std::string word = in_brackets(std::string(kWords) + std::string(kLatinNumbers), false);
    out_ += negated ? "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))"
                    : "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
  }

  void property(char letter) {
    if (peek(2) != '{') refuse("a property without braces");
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) refuse("a property without an end");
    std::string name(pattern_.substr(at_ + 3, close - at_ - 3));
    const std::string negation = name.starts_with("^") ? "^" : "";
    name.erase(0, negation.size());
    for (const char c : name) {
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != ' ') refuse("a property that is no name");
    }
    if (name.size() > 2 && knows_property_("sc:" + name)) name = "sc:" + name;
    out_ += "\\" + std::string(1, letter) + "{" + negation + name + "}";
    at_ = close + 1;
  }

  void escape(bool in_class) {
    const char c = peek(1);
    switch (c) {
      case '\0':
        refuse("a backslash at its end");
      case 's':
        set(kSpaces, in_class, false);
        break;
      case 'S':
        set(kSpaces, in_class, true);
        break;
      case 'w':
        set(kWords, in_class, false);
        break;
      case 'W':
        set(kWords, in_class, true);
        break;
      case 'h':
        set(kHexDigits, in_class, false);
        break;
      case 'H':
        set(kHexDigits, in_class, true);
        break;
      case 'p':
      case 'P':
        return property(c);
      case 'u': {
        for (size_t i = 2; i < 6; ++i) {
          if (!std::isxdigit(static_cast<unsigned char>(peek(i)))) refuse("\\u without four digits");
        }
        out_ += "\\x{" + std::string(pattern_.substr(at_ + 2, 4)) + "}";
        at_ += 6;
        return;
      }
      case 'b':
      case 'B':
        if (!in_class) {
          boundary(c == 'B');
          break;
        }
        [[fallthrough]];
      default:
        if (std::isalpha(static_cast<unsigned char>(c)) && std::string_view("dDnrtfvaexAzZRXGkgbo").find(c) == std::string_view::npos) {
          refuse(std::string("the escape \\") + c);
        }
        out_ += '\\';
        out_ += c;
    }
    at_ += 2;
  }

  void character_class() {
    out_ += pattern_[at_++];
    if (peek(0) == '^') out_ += pattern_[at_++];
    bool first = true;
    int within = 0;  // classes within the class; their members are the outer one's too
    while (at_ < pattern_.size() && (pattern_[at_] != ']' || first || within > 0)) {
      if (pattern_[at_] == '\\') {
        escape(true);
      } else if (pattern_[at_] == '[') {
        if (peek(1) == ':' || peek(1) == '^' || peek(1) == ']') refuse("a named or negated class within a class");
        ++within;
        ++at_;
      } else if (pattern_[at_] == '&' && peek(1) == '&') {
        refuse("an intersection of classes");
      } else if (pattern_[at_] == ']' && within > 0) {
        --within;
        ++at_;
      } else {
        if (pattern_[at_] == ']') out_ += '\\';
        out_ += pattern_[at_++];
      }
      first = false;
    }
    if (at_ < pattern_.size()) out_ += pattern_[at_++];
  }

  void open_group() {
    if (peek(1) == '*') refuse("a group that begins with *");
    groups_.push_back(out_.size());
    out_ += pattern_[at_++];
    if (peek(0) != '?') return;
    out_ += pattern_[at_++];
    // Options: Oniguruma's m is PCRE2's s; a m of PCRE2 is always on.
    size_t letters = 0;
    while (std::isalpha(static_cast<unsigned char>(peek(letters))) || peek(letters) == '-') ++letters;
    const char behind = peek(letters);
    const bool options = letters > 0 && (behind == ':' || behind == ')');
    if (!options && std::string_view(":=!<>").find(peek(0)) == std::string_view::npos) refuse("a group of an unknown kind");
    for (size_t i = 0; options && i < letters; ++i) {
      const char c = pattern_[at_++];
      if (c != 'i' && c != 'm' && c != '-') refuse(std::string("the option ") + c);
      out_ += c == 'm' ? 's' : c;
    }
    if (peek(0) == '<' && (peek(1) == '=' || peek(1) == '!')) {
      out_ += pattern_.substr(at_, 2);
      at_ += 2;
    } else if (std::string_view(":=!>").find(peek(0)) != std::string_view::npos) {
      out_ += pattern_[at_++];
    }
  }

  /// {n}, {n,}, {,m} or {n,m}; a + behind it repeats the whole.
  bool interval() {
    size_t i = 1;
    while (std::isdigit(static_cast<unsigned char>(peek(i)))) ++i;
    const bool from = i > 1;
    const bool comma = peek(i) == ',';
    const size_t second = comma ? i + 1 : i;
    i = second;
    while (comma && std::isdigit(static_cast<unsigned char>(peek(i)))) ++i;
    const bool to = comma && i > second;
    if (peek(i) != '}' || (!from && !to)) return false;
    out_ += "{" + (from ? "" : std::string("0")) + std::string(pattern_.substr(at_ + 1, i));
    at_ += i + 1;
    if (peek(0) == '+') {
      out_ = out_.substr(0, atom_) + "(?:" + out_.substr(atom_) + ")";
    }
    return true;
  }

  std::string_view pattern_;
  const std::string& where_;
  const std::function<bool(const std::string&)>& knows_property_;
  std::string out_;
  size_t at_ = 0, atom_ = 0;
  std::vector<size_t> groups_;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& where,
                          const std::function<bool(const std::string&)>& knows_property) {
  return Translation(pattern, where, knows_property).run();
}

}  // namespace spillway::data
