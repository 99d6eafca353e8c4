#include "ptx/module.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <stdexcept>

#include "ptx/types.h"

namespace ptx {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%'; }
bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return is_word(c); });
}

// Replaces comments by spaces, so that lines keep their numbers.
std::string without_comments(std::string_view text) {
  std::string out(text);
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    if (out[i] != '/' || (out[i + 1] != '/' && out[i + 1] != '*')) continue;
    const bool line = out[i + 1] == '/';
    std::size_t end = line ? out.find('\n', i) : out.find("*/", i + 2);
    end = end == std::string::npos ? out.size() : line ? end : end + 2;
    for (; i < end; ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
  }
  return out;
}

// Reads a module from its beginning to its end.
class Reader {
 public:
  explicit Reader(std::string_view text) : owned_(std::make_unique<const std::string>(without_comments(text))), text_(*owned_) {}

  Module read() {
    for (skip(); at_ < text_.size(); skip()) {
      if (starts_with(".version") || starts_with(".target") || starts_with(".address_size")) {
        at_ = end_of_line();
      } else if (starts_with(".file")) {
        file();
      } else if (starts_with(".section")) {
        at_ = find_or_end('}') + 1;
      } else {
        const std::size_t name = std::min(word_before_body(".entry"), word_before_body(".func"));
        name == std::string::npos ? variable() : function(name);
      }
    }
    module_.text = std::move(owned_);
    return std::move(module_);
  }

 private:
  bool starts_with(std::string_view word) const { return std::string_view(text_).substr(at_, word.size()) == word; }
  std::size_t find_or_end(char c) const { return std::min(text_.find(c, at_), text_.size()); }
  std::size_t end_of_line() const { return find_or_end('\n'); }
  void skip() {
    while (at_ < text_.size() && (is_space(text_[at_]) || text_[at_] == ';' || text_[at_] == '\0')) step();
  }
  void step() { line_ += text_[at_++] == '\n'; }
  void go(std::size_t to) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_), text_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  // Returns where the word begins, if it comes before the next body, parameter list or semicolon.
  std::size_t word_before_body(std::string_view word) const {
    const std::size_t found = text_.find(word, at_);
    return found < text_.find_first_of("{;=", at_) && !is_word(text_[found + word.size()]) ? found : std::string::npos;
  }
  std::string take_until(std::size_t end) {
    std::string out = text_.substr(at_, end - at_);
    go(end);
    return out;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("line " + std::to_string(line_) + " of the PTX: " + what);
  }

  // .file 1 "name" and perhaps a time and a size
  void file() {
    const std::string line = take_until(end_of_line());
    const std::size_t open = line.find('"'), close = line.find('"', open + 1);
    if (close != std::string::npos) module_.files[std::atoi(line.c_str() + 5)] = line.substr(open + 1, close - open - 1);
  }

  std::vector<Variable> parameters() {
    const std::string list = take_until(text_.find(')', at_) + 1);
    std::vector<Variable> all;
    for (const std::string& one : split(list.substr(1, list.size() - 2), ',')) {
      if (one.empty()) continue;
      all.push_back(parse_variable(one));
      all.back().space = Space::param;
    }
    return all;
  }

  void function(std::size_t at) {
    Function f;
    f.is_kernel = text_.compare(at, 6, ".entry") == 0;
    go(at + (f.is_kernel ? 6 : 5));
    skip();
    if (text_[at_] == '(') f.results = parameters(), skip();
    std::size_t end = at_;
    while (is_word(text_[end])) ++end;
    f.name = take_until(end);
    skip_spaces();
    if (text_[at_] == '(') f.parameters = parameters();
    const std::size_t body = text_.find_first_of("{;", at_);
    const std::string directives = take_until(body);
    if (const std::size_t most = directives.find(".maxntid"); most != std::string::npos) {
      f.most_threads = 1;
      for (const std::string& extent : split(directives.substr(most + 8, directives.find('\n', most) - most - 8), ','))
        f.most_threads *= static_cast<unsigned>(std::atoi(extent.c_str()));
    }
    if (text_[at_] == ';') return;  // a declaration
    step();
    f.body_line = line_;
    const std::size_t begin = at_;
    for (int depth = 1; depth > 0;) {
      const std::size_t brace = text_.find_first_of("{}", at_);
      if (brace == std::string::npos) fail("the body of " + f.name + " does not end");
      depth += text_[brace] == '{' ? 1 : -1;
      go(brace + 1);
    }
    f.body = std::string_view(text_).substr(begin, at_ - 1 - begin);
    module_.functions[f.name] = std::move(f);
  }
  void skip_spaces() {
    while (is_space(text_[at_])) step();
  }

  void variable() {
    std::size_t end = at_;
    for (int depth = 0; end < text_.size() && (text_[end] != ';' || depth > 0); ++end)
      depth += text_[end] == '{' ? 1 : text_[end] == '}' ? -1 : 0;
    Variable v = parse_variable(take_until(end));
    if (v.name.empty()) fail("expected a function or a variable");
    module_.variables[v.name] = std::move(v);
  }

  std::unique_ptr<const std::string> owned_;
  const std::string& text_;
  std::size_t at_ = 0;
  int line_ = 1;
  Module module_;
};

}  // namespace

Module parse_module(std::string_view text) { return Reader(text).read(); }

std::vector<Statement> statements_of(const Function& f) {
  std::vector<Statement> all;
  int line = f.body_line, begun = 0, within = 0, source_line = 0, source_file = 0;
  std::string text;
  const auto put = [&] {
    Statement now{trimmed(text), begun, source_line, source_file};
    text.clear();
    begun = 0;
    if (now.text.starts_with(".loc ")) {  // .loc file line column
      source_file = std::atoi(now.text.c_str() + 4);
      const std::size_t second = now.text.find_first_of(" \t", 5);
      source_line = second == std::string::npos ? 0 : std::atoi(now.text.c_str() + second);
    } else if (!now.text.empty()) {
      all.push_back(std::move(now));
    }
  };
  for (std::size_t at = 0; at < f.body.size(); ++at) {
    const char c = f.body[at];
    const bool begins = begun == 0;
    if (begins && !is_space(c)) begun = line;
    line += c == '\n';
    if (within == 0 && begins && (c == '{' || c == '}')) {
      text = c;
      put();
    } else if (within == 0 && c == ';') {
      put();
    } else if (within == 0 && c == ':' && f.body.substr(at, 2) != "::" && f.body[at - 1] != ':' && is_word(trimmed(text))) {
      text += c;
      put();
    } else if (c == '\n' && text.starts_with(".loc ")) {  // the one directive within a body that ends with its line
      put();
    } else if (!begins || !is_space(c)) {
      within += c == '{' || c == '(' || c == '[';
      within -= c == '}' || c == ')' || c == ']';
      text += c == '\n' ? ' ' : c;
    }
  }
  return all;
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (const char c : text) {
    depth += c == '[' || c == '{' || c == '(';
    depth -= c == ']' || c == '}' || c == ')';
    if (c == separator && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!trimmed(part).empty() || !parts.empty()) parts.push_back(trimmed(part));
  return parts;
}

bool parse_number(std::string_view text, std::uint64_t& bits) {
  const std::string number(text);
  if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") || text.starts_with("0D")) {
    bits = std::strtoull(number.c_str() + 2, nullptr, 16);
    return true;
  }
  if (text.empty() || (std::isdigit(static_cast<unsigned char>(text[0])) == 0 && text[0] != '-')) return false;
  bits = text[0] == '-' ? static_cast<std::uint64_t>(std::strtoll(number.c_str(), nullptr, 0)) : std::strtoull(number.c_str(), nullptr, 0);
  return true;
}

Variable parse_variable(std::string_view text) {
  Variable v;
  const std::size_t equals = text.find('=');
  const std::string values = equals == std::string_view::npos ? "" : trimmed(text.substr(equals + 1));
  const std::string declared(text.substr(0, equals));
  std::size_t element = 1, align = 0, at = 0;
  bool pointer = false;
  const auto next = [&] {
    while (at < declared.size() && is_space(declared[at])) ++at;
    const std::size_t begin = at;
    while (at < declared.size() && !is_space(declared[at]) && declared[at] != '[') ++at;
    return declared.substr(begin, at - begin);
  };
  for (std::string word = next(); !word.empty(); word = next()) {
    if (word[0] != '.') {
      v.name = word;
      break;
    }
    if (word == ".align") {
      const auto bytes = static_cast<std::size_t>(std::atoi(next().c_str()));
      if (!pointer) align = bytes;  // after .ptr it is that of what the parameter points to
    } else if (word == ".ptr") {
      pointer = true;
    } else if (word == ".shared" || word == ".local" || word == ".const" || word == ".param") {
      if (!pointer)
        v.space = word == ".shared" ? Space::shared : word == ".local" ? Space::local : word == ".param" ? Space::param : Space::constant;
    } else if (const Type type = type_named(word.substr(1)); type.bytes > 0) {
      element = type.bytes;
    }
  }
  v.bytes = element;
  for (std::size_t open = declared.find('[', at); open != std::string::npos; open = declared.find('[', open + 1))
    v.bytes *= static_cast<std::size_t>(std::strtoull(declared.c_str() + open + 1, nullptr, 0));  // 0 for []
  v.align = align > 0 ? align : element;
  for (std::string value : split(values.starts_with("{") ? values.substr(1, values.size() - 2) : values, ',')) {
    std::uint64_t bits = 0;
    if (value.empty()) continue;
    if (!parse_number(value, bits)) throw std::runtime_error("initial value " + value + " of " + v.name + " is no number");
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&bits);
    v.initial.insert(v.initial.end(), bytes, bytes + element);
  }
  return v;
}

}  // namespace ptx
