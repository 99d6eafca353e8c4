#include "app/entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <vector>

#include "app/commands/commands.h"
#include "app/console/pager.h"
#include "app/console/signals.h"
#include "app/help/help.h"
#include "app/help/pages.h"
#include "app/ranks/supervise.h"
#include "base/error.h"
#include "trainer/deepspeed/deepspeed.h"
#include "trainer/node/calibration.h"
#include "trainer/node/failure.h"
#include "trainer/node/grant.h"
#include "trainer/node/launcher.h"
#include "trainer/node/version.h"
#include "trainer/ranks/on_ranks.h"
#include "trainer/ranks/rank_report.h"
#include "trainer/settings/given.h"
#include "trainer/settings/suggest.h"
#include "trainer/train/train.h"

namespace spillway::app {
namespace {

/// Dispatch runs the command whose settings it is called with, on the ranks that the command needs.
struct Dispatch {
  Console& console;
  const Host& host;
  const std::vector<std::string> words;  // command-line words: the command's name and its flags

  /// Runs `body` as one rank, if this process is one of the ranks. If several ranks
  /// are wanted and no launcher has started them, starts a process for each instead.
  template <class Config>
  int on_ranks(const Config& given, int (*body)(const Config&, Console&, const Peers&)) const {
    const auto start = [&] { return start_ranks(static_cast<int>(given.ranks), static_cast<double>(given.timeout_s)); };
    const bool starts = detect_launcher(host).name.empty() && given.ranks > 1 && given.communicator != "local";
    if (std::is_same_v<Config, TrainConfig> && !starts) install_stop_handlers();
    if (const std::string notice = shared_cores_notice(given.ranks, core_grant(host));
        detect_launcher(host).name.empty() && !notice.empty())
      console.warn(notice);
    return trainer::on_ranks(
        given, console, host, [&](const Peers& peers) { return body(given, console, peers); }, start,
        // The process ends without running destructors, because threads that still run would use the destroyed objects.
        [](int status) { ::_exit(status); });
  }

  int operator()(const TrainConfig& config) const {
    if (!config.rehearse) {
      return on_ranks(
          config, +[](const TrainConfig& given, Console& own, const Peers& peers) { return run_train(given, own, peers); });
    }
    if (const Launcher launcher = detect_launcher(host); launcher.ranks > 1) {
      throw Error(ErrorCode::usage, "[--rehearse] expected to start the ranks itself (--ranks N), got one of " +
                                        std::to_string(launcher.ranks) + " that " + launcher.name +
                                        " started: run --rehearse on one node, without the launcher");
    }
    return run_rehearsal(config, console);
  }
  int operator()(const PlanConfig& config) const { return run_plan(config, console); }
  int operator()(const GenerateConfig& config) const { return on_ranks(config, run_generate); }
  int operator()(const ChatConfig& config) const { return on_ranks(config, run_chat); }
  int operator()(const ExportConfig& config) const { return run_export(config, console); }
  int operator()(const ImportConfig& config) const { return run_import(config, console); }
  int operator()(const TokenizeConfig& config) const { return run_tokenize(config, console); }
  int operator()(const InspectConfig& config) const { return run_inspect(config, console); }
  int operator()(const StatusConfig& config) const { return run_status(config, console); }
  int operator()(const TopConfig& config) const { return run_top(config, console); }
  int operator()(const ReportConfig& config) const { return run_report(config, console); }
  int operator()(const ScheduleConfig& config) const { return run_schedule(config, console); }
  int operator()(const SlurmConfig& config) const { return run_slurm(config, console); }
  int operator()(const SelftestConfig& config) const { return run_selftest(config, console, host); }
  int operator()(const EvaluateConfig& config) const { return on_ranks(config, run_evaluate); }
  int operator()(const ClassifyConfig& config) const { return on_ranks(config, run_classify); }
  int operator()(const BenchConfig& config) const {
    if (config.wants("communicator") && detect_launcher(host).ranks == 1) return start_ranks(kBenchRanks, Supervision().timeout_s);
    return run_bench(config, console, host);
  }
  int operator()(const DoctorConfig& config) const { return run_doctor(config, console, host); }

 private:
  int start_ranks(int ranks, double timeout_s) const {
    return supervise({.ranks = ranks, .args = words, .timeout_s = timeout_s}, console, host);
  }
};

// Prints a help text. On a terminal it goes through a pager, one screen at a time.
void show_help(const Streams& streams, const std::string& text) {
  if (!streams.out_terminal || !show_in_pager(text)) streams.out << text << std::flush;
}

// Runs one command. Sets `json` if a flag or the configuration file asks for JSON.
int run_command(Command command, const std::vector<std::string>& args, const Streams& streams, const Host& host, bool& json) {
  const bool all = std::ranges::find(args, "--help=all") != args.end();
  const GivenMap flags = all ? GivenMap() : parse_flags(command, args);
  if (all || flags.contains("help")) {
    const bool is_short = !all && (command == Command::train || command == Command::plan);
    show_help(streams, is_short ? short_help(command) : command_help(command));
    return 0;
  }
  std::vector<std::string> notes;
  const GivenMap given = with_files(command, flags, notes);
  Settings settings = make_settings(command, given);
  if (auto* slurm = std::get_if<SlurmConfig>(&settings)) slurm->train_words = train_words(given);
  if (auto* train = std::get_if<TrainConfig>(&settings)) train->rehearsal_words = rehearsal_words(given);
  // mpirun gives each rank a pseudo-terminal, even if mpirun's own output goes to a file. Stdout therefore
  // counts as a terminal only if this process was started without a launcher, or by spillway itself.
  const Launcher launcher = detect_launcher(host);
  const bool own_terminal = streams.out_terminal && (launcher.name.empty() || launcher.name == "spillway");
  Console console(streams.out, streams.err, streams.terminal, streams.colour && own_terminal, own_terminal);
  console.set_text(streams.text);
  std::visit(
      [&](const CommonConfig& common) {
        console.set_quiet(common.quiet);
        console.set_json(json = common.json);
      },
      settings);
  for (const std::string& note : notes) {
    if (launcher.rank == 0 && launcher.name != "spillway")
      console.log("--deepspeed: " + note);  // the process that started this rank has already logged the notes on the DeepSpeed file
  }
  check_settings(settings, host);
  std::vector<std::string> words{std::string(info(command).name)};
  words.insert(words.end(), args.begin(), args.end());
  return std::visit(Dispatch{console, host, words}, settings);
}

const CommandInfo& find_command(const std::string& name) {
  for (const CommandInfo& one : commands()) {
    if (one.name == name) return one;
  }
  throw Error(ErrorCode::usage, unknown_command(name));
}

int run_any(std::span<const std::string> args, const Streams& streams, const Host& host, bool& json) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || (args[0] == "help" && args.size() == 1)) {
    show_help(streams, program_help());
    return 0;
  }
  if (args[0] == "--version" || args[0] == "version") {
    streams.out << "spillway " << kVersion << "\n" << std::flush;
    return 0;
  }
  // `data inspect` is an alias of `inspect`.
  if (args[0] == "data" && args.size() > 1 && args[1] == "inspect") return run_any(args.subspan(1), streams, host, json);
  const std::pair<std::string_view, std::string (*)()> pages[] = {
      {"markdown", markdown_page}, {"man", man_page}, {"completion", bash_completion}};
  for (const auto& [name, page] : pages) {
    if (args[0] != "help" || args[1] != name) continue;
    streams.out << page() << std::flush;
    return 0;
  }
  if (args[0] == "help") return run_command(find_command(args[1]).command, {"--help"}, streams, host, json);
  return run_command(find_command(args[0]).command, {args.begin() + 1, args.end()}, streams, host, json);
}

// Returns the JSON that is printed in place of a result when a command fails under --json.
std::string error_json(const Failure& failure) {
  const nlohmann::ordered_json all = {{"error", {{"status", static_cast<int>(failure.code)}, {"message", failure.text}}}};
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string speaker(std::span<const std::string> args) {
  return args.empty() || args[0].starts_with("-") ? "spillway" : "spillway " + args[0];
}

}  // namespace

int run(std::span<const std::string> args, const Streams& streams, const Host& host) {
  const auto say = [&](const std::string& message) {
    Console(streams.out, streams.err, streams.terminal).log(speaker(args) + ": " + message);
  };
  bool json = std::ranges::find(args, "--json") != args.end();
  try {
    const int status = run_any(args, streams, host, json);
    if (streams.out.flush()) return status;
    say("[stdout] the results could not be written: the disk is full, or the program that reads them has ended");
    return static_cast<int>(ErrorCode::io);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    if (!report_failure(failure)) {
      say(failure.text);
      if (json) streams.out << error_json(failure) << std::flush;
    }
    return static_cast<int>(failure.code);
  }
}

int run(std::span<const std::string> args, std::ostream& out, std::ostream& err) { return run(args, Streams{out, err}); }

}  // namespace spillway::app
