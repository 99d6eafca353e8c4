#include "app/entry.h"

#include <new>
#include <vector>

#include "app/commands.h"
#include "app/given.h"
#include "app/help.h"
#include "app/signals.h"
#include "app/suggest.h"
#include "base/error.h"

namespace spillway::app {
namespace {

constexpr const char* kVersion = "0.1.0";

/// The console's manners, and the command's body.
struct Dispatch {
  Console& console;
  const Host& host;

  int operator()(const TrainConfig& config) const {
    install_stop_handlers();
    return run_train(config, console);
  }
  int operator()(const PlanConfig& config) const { return run_plan(config, console); }
  int operator()(const GenerateConfig& config) const { return run_generate(config, console); }
  int operator()(const ExportConfig& config) const { return run_export(config, console); }
  int operator()(const TokenizeConfig& config) const { return run_tokenize(config, console); }
  int operator()(const InspectConfig& config) const { return run_inspect(config, console); }
  int operator()(const StatusConfig& config) const { return run_status(config, console); }
  int operator()(const ScheduleConfig& config) const { return run_schedule(config, console); }
  int operator()(const BenchConfig& config) const { return run_bench(config, console, host); }
  int operator()(const DoctorConfig& config) const { return run_doctor(config, console, host); }
};

int run_command(Command command, const std::vector<std::string>& args, const Streams& streams, const Host& host) {
  const GivenMap flags = parse_flags(command, args);
  if (flags.contains("help")) {
    streams.out << command_help(command) << std::flush;
    return 0;
  }
  GivenMap given = flags;
  if (const auto file = flags.find("config"); file != flags.end()) {
    given = merge(command, flags, read_config_file(command, file->second.texts.front()));
  }
  Settings settings = make_settings(command, given);
  check_settings(settings, host);
  Console console(streams.out, streams.err, streams.terminal, streams.colour);
  std::visit(
      [&](const CommonConfig& common) {
        console.set_quiet(common.quiet);
        console.set_json(common.json);
      },
      settings);
  return std::visit(Dispatch{console, host}, settings);
}

const CommandInfo& find_command(const std::string& name) {
  for (const CommandInfo& one : commands()) {
    if (one.name != name) continue;
    if (!one.command) throw Error(ErrorCode::usage, "[" + name + "] not built yet; " + std::string(one.instead));
    return one;
  }
  throw Error(ErrorCode::usage, unknown_command(name));
}

int run_any(std::span<const std::string> args, const Streams& streams, const Host& host) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || (args[0] == "help" && args.size() == 1)) {
    streams.out << program_help() << std::flush;
    return 0;
  }
  if (args[0] == "--version") {
    streams.out << "spillway " << kVersion << "\n" << std::flush;
    return 0;
  }
  if (args[0] == "help") return run_command(*find_command(args[1]).command, {"--help"}, streams, host);
  return run_command(*find_command(args[0]).command, {args.begin() + 1, args.end()}, streams, host);
}

std::string speaker(std::span<const std::string> args) {
  return args.empty() || args[0].starts_with("-") ? "spillway" : "spillway " + args[0];
}

}  // namespace

int run(std::span<const std::string> args, const Streams& streams, const Host& host) {
  const auto say = [&](const std::string& message) { streams.err << speaker(args) << ": " << message << "\n" << std::flush; };
  try {
    const int status = run_any(args, streams, host);
    if (streams.out.flush()) return status;
    say("[stdout] the results could not be written: is the disk full, or the reader gone?");
    return static_cast<int>(ErrorCode::io);
  } catch (const Error& error) {
    say(error.what());
    return error.exit_status();
  } catch (const std::bad_alloc&) {
    say("[memory] the system refused memory: lower --device-memory or --host-memory, or free memory on this node");
    return static_cast<int>(ErrorCode::io);
  } catch (const std::exception& error) {
    say(std::string("[bug] ") + error.what());
    return static_cast<int>(ErrorCode::bug);
  } catch (...) {
    say("[bug] an exception of an unknown type");
    return static_cast<int>(ErrorCode::bug);
  }
}

int run(std::span<const std::string> args, std::ostream& out, std::ostream& err) { return run(args, Streams{out, err}); }

}  // namespace spillway::app
