#include "tests/laws/support_sources.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace spillway::laws {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<Source> read_all() {
  const fs::path root = SPILLWAY_SOURCE_DIR;
  std::vector<Source> sources;
  for (const char* top : {"src", "offload", "optim", "parallel", "python", "tests", "bench", "examples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string extension = entry.path().extension().string();
      if (!entry.is_regular_file() || (extension != ".h" && extension != ".cc" && extension != ".cu")) continue;
      sources.push_back({entry.path().lexically_relative(root).generic_string(), read(entry.path())});
    }
  }
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.path < b.path; });
  return sources;
}

// Returns where the comment or literal that starts at `i` ends, or `i` if none starts there.
size_t end_of_quiet(const std::string& text, size_t i) {
  const auto after = [&](const std::string& mark, size_t from) {
    const size_t found = text.find(mark, from);
    return found == std::string::npos ? text.size() : found + mark.size();
  };
  if (text.compare(i, 2, "//") == 0) return std::min(text.find('\n', i), text.size());
  if (text.compare(i, 2, "/*") == 0) return after("*/", i + 2);
  if (text.compare(i, 2, "R\"") == 0) return after(")" + text.substr(i + 2, text.find('(', i) - i - 2) + "\"", i + 2);
  const bool digit_separator = text[i] == '\'' && i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1]));
  if ((text[i] != '"' && text[i] != '\'') || digit_separator) return i;
  size_t end = i + 1;
  while (end < text.size() && text[end] != text[i]) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

std::set<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> words;
  for (std::string word; in >> word;) words.insert(word);
  return words;
}

}  // namespace

const std::vector<Source>& all_sources() {
  static const std::vector<Source> sources = read_all();
  return sources;
}

std::vector<Source> room_sources() {
  const auto known = rooms();
  std::vector<Source> sources;
  for (const Source& source : all_sources()) {
    if (!room_of(source.path, known).empty()) sources.push_back(source);
  }
  return sources;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string code_only(const std::string& text) {
  std::string code;
  for (size_t i = 0; i < text.size();) {
    const size_t end = end_of_quiet(text, i);
    if (end == i) {
      code += text[i++];
      continue;
    }
    if (text[i] != '/') code += "\"\"";
    code.append(static_cast<size_t>(std::count(text.begin() + static_cast<long>(i), text.begin() + static_cast<long>(end), '\n')), '\n');
    i = end;
  }
  return code;
}

std::vector<Include> includes_of(const Source& source) {
  static const std::regex form(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"].*)");
  std::vector<Include> includes;
  int number = 0;
  for (const std::string& line : lines_of(source.text)) {
    ++number;
    std::smatch match;
    if (line.find("include") != std::string::npos && std::regex_match(line, match, form))
      includes.push_back({number, match[2], match[1] == "\""});
  }
  return includes;
}

std::map<std::string, Room> rooms() {
  std::map<std::string, Room> rooms;
  for (std::string line : lines_of(read(fs::path(SPILLWAY_BINARY_DIR) / "rooms.txt"))) {
    std::replace(line.begin(), line.end(), ';', ' ');
    std::istringstream in(line);
    std::string name, folder, rest;
    in >> name >> folder;
    std::getline(in, rest);
    Room room{folder, {name}};
    for (const std::string& below : words_of(rest)) {  // libraries are declared from the bottom up, so those named here are complete
      const auto& deeper = rooms.at(below).may_include;
      room.may_include.insert(deeper.begin(), deeper.end());
    }
    rooms.emplace(name, room);
  }
  return rooms;
}

std::string room_of(const std::string& path, const std::map<std::string, Room>& rooms) {
  std::string innermost;
  for (const auto& [name, room] : rooms) {  // names are sorted, so a sub-library comes after its library
    if (path.starts_with(room.folder + "/")) innermost = name;
  }
  return innermost;
}

std::string at(const Source& source, int line, const std::string& what) { return source.path + ":" + std::to_string(line) + ": " + what; }

std::string joined(const std::vector<std::string>& violations) {
  std::string text;
  for (const std::string& violation : violations) text += "\n  " + violation;
  return text;
}

}  // namespace spillway::laws
