// CLI11 splits the arguments; what they mean is the option table's business.
#include <CLI/CLI.hpp>

#include "app/flags/given.h"
#include "app/flags/suggest.h"
#include "base/error.h"

namespace spillway::app {
namespace {

constexpr int kMostWords = 1 << 16;  // of a repeatable positional

using Bound = std::pair<const Option*, CLI::Option*>;

std::vector<Bound> declare(CLI::App& parser, Command command) {
  std::vector<Bound> bound;
  for (const Option* option : options_of(command)) {
    if (option->positional) {
      bound.emplace_back(option, parser.add_option(option->name)
                                     ->expected(1, option->field.repeatable ? kMostWords : 1)
                                     ->allow_extra_args(option->field.repeatable)
                                     ->take_all());
    } else if (option->field.kind == Kind::flag) {
      bound.emplace_back(option, parser.add_flag("--" + option->name)->take_all());
    } else {
      bound.emplace_back(option, parser.add_option("--" + option->name)->expected(1)->allow_extra_args(false)->take_all());
    }
  }
  return bound;
}

[[noreturn]] void reject_extra(Command command, const std::string& extra) {
  if (extra.starts_with("--")) throw Error(ErrorCode::usage, unknown_option(command, extra.substr(2, extra.find('=') - 2), true));
  if (extra.starts_with("-")) {
    throw Error(ErrorCode::usage,
                "[" + extra + "] unknown flag: flags have two dashes, spillway " + std::string(info(command).name) + " --help lists them");
  }
  throw Error(ErrorCode::usage,
              "[" + extra + "] a word that belongs to no flag; a flag that takes several values is repeated (--data A --data B)");
}

// CLI11 takes a flag for the missing value of the one before it as "1 required": said in our words.
void check_values(const std::vector<std::string>& args, const std::vector<Bound>& bound) {
  for (size_t i = 0; i < args.size(); ++i) {
    const bool last = i + 1 == args.size() || args[i + 1].starts_with("--");
    for (const auto& [option, parsed] : bound) {
      if (last && option->field.kind != Kind::flag && !option->positional && args[i] == "--" + option->name) {
        throw Error(ErrorCode::usage, "[" + args[i] + "] expected a value (" + option->shown_metavar() + ") behind it, got nothing");
      }
    }
  }
}

}  // namespace

GivenMap parse_flags(Command command, const std::vector<std::string>& args) {
  CLI::App parser;
  parser.set_help_flag("-h,--help");
  parser.allow_extras();
  const std::vector<Bound> bound = declare(parser, command);
  check_values(args, bound);
  GivenMap given;
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    parser.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    given["help"] = {{"true"}, "--help"};
    return given;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::usage, std::string("[command line] ") + error.what());
  }
  if (const auto extras = parser.remaining(); !extras.empty()) reject_extra(command, extras.front());
  for (const auto& [option, parsed] : bound) {
    if (parsed->count() == 0) continue;
    given[option->name] = {parsed->results(), option->positional ? option->metavar : "--" + option->name};
  }
  return given;
}

}  // namespace spillway::app
