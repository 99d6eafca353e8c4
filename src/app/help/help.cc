#include "app/help/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "trainer/settings/text.h"

namespace spillway::app {
namespace {

constexpr size_t kIndent = 6, kWidth = 80;

// The short help has a line for each flag: a column for the flag and its value, then a few words and the default, as far as they fit.
std::string line_of(const Option& option) {
  constexpr size_t kFlagColumns = 35;
  std::string head = "  --" + option.name;
  if (const std::string with_value = head + " " + option.shown_metavar(); with_value.size() < kFlagColumns) head = with_value;
  head.resize(kFlagColumns, ' ');
  const std::string what = head + option.brief;
  const std::string value = option.required || option.required_by_train ? "  (required)" : "  [" + option.shown_default() + "]";
  return what + (value.size() > 4 && what.size() + value.size() <= kWidth ? value : "") + "\n";
}

std::string indented(const std::string& text) { return wrapped(text, kIndent, kWidth); }

std::string entry(const Option& option) {
  const std::string metavar = option.shown_metavar(), value = option.shown_default();
  std::string head = option.positional ? "  " + metavar : "  --" + option.name + (metavar.empty() ? "" : " " + metavar);
  if (option.required) head += "  (required)";
  if (option.required_by_train) head += "  (required by train)";
  const std::string shown = value.empty() ? "" : "[" + value + "]";
  const bool fits = head.size() + 2 + shown.size() <= kWidth;
  if (fits && !shown.empty()) head += "  " + shown;
  return head + "\n" + (fits ? "" : indented(shown)) + indented(description(option));
}

}  // namespace

std::string wrapped(const std::string& text, size_t indent, size_t width) {
  std::istringstream words(text);
  std::string out, word;
  size_t column = 0;
  while (words >> word) {
    if (column == 0 || column + 1 + word.size() > width) {
      out += (column == 0 ? "" : "\n") + std::string(indent, ' ') + word;
      column = indent + word.size();
    } else {
      out += " " + word;
      column += 1 + word.size();
    }
  }
  return out + "\n";
}

std::string description(const Option& option) {
  std::string text = option.help;
  if (option.range) text += "; " + option.range->text();
  return text;
}

std::vector<std::string> groups_of(const std::vector<const Option*>& options) {
  std::vector<std::string> names;
  for (const Option* option : options) {
    if (std::ranges::find(names, option->group) == names.end()) names.push_back(option->group);
  }
  return names;
}

std::string program_help() {
  std::string text =
      "spillway trains models larger than GPU memory: it offloads what does not fit\nfrom device memory to host memory and NVMe.\n\n";
  text += "usage: spillway COMMAND [flags]\n\ncommands:\n";
  for (const CommandInfo& one : commands()) {
    text += "  " + std::string(one.name) + std::string(10 - one.name.size(), ' ') + std::string(one.summary);
    text += "\n";
  }
  text += "\n  spillway COMMAND --help   the command's flags\n  spillway version\n\n";
  text += "Exit status: 0 done, 2 wrong command line, 3 would not fit, 4 data unreadable,\n5 I/O failed, 6 a rank died, 7 numbers failed, ";
  return text + "75 stopped after saving (run\nthe same command again), 130 left by a second Ctrl-C, 1 a bug.\n";
}

std::string short_help(Command command) {
  const std::string name(info(command).name);
  std::vector<const Option*> all = options_of(command);
  const size_t there = all.size();
  std::erase_if(all, [](const Option* option) { return option->brief.empty(); });
  std::string text = std::string(info(command).summary) + "\n" + "usage: spillway " + name + " " + std::string(info(command).usage) + "\n";
  for (const std::string& group : groups_of(all)) {
    const auto in_group = [&](const Option* option) { return option->group == group; };
    if (std::ranges::count_if(all, in_group) > 1) text += "\n";
    for (const Option* option : all) {
      if (in_group(option)) text += line_of(*option);
    }
  }
  return text + fmt::format("[defaults]; sizes such as 640MiB. All {} flags: spillway {} --help=all\n", there, name);
}

std::string command_help(Command command) {
  const std::vector<const Option*> all = options_of(command);
  std::string text = "spillway " + std::string(info(command).name) + "\n" + indented(std::string(info(command).summary)) + "\n";
  text += "usage: spillway " + std::string(info(command).name) + " " + std::string(info(command).usage) + "\n";
  for (const std::string& group : groups_of(all)) {
    text += "\n" + group + ":\n";
    for (const Option* option : all) {
      if (option->group == group) text += entry(*option);
    }
  }
  text +=
      "\nA value in [brackets] is the default. Sizes: 640MiB, 1.5G (powers\nof 1024), 100GB (of 1000). Times: 30s 30m 2h 1-12:00:00. Every "
      "flag is also a\n";
  return text + "key of --config's JSON, dashes as underscores.\n";
}

}  // namespace spillway::app
