// Declares the bodies of the commands. Each takes its typed configuration and returns
// the exit status. Failures are thrown as Errors, which run() (entry.h) prints.
#pragma once
#include "app/console/console.h"
#include "app/names/names.h"
#include "trainer/node/busy.h"
#include "trainer/node/host.h"
#include "trainer/ranks/peers.h"
#include "trainer/settings/config.h"

namespace spillway::app {

constexpr int kInterrupted = 130;  // exit status of a command that Ctrl-C interrupted, as shells report it

/// Runs train --rehearse, in processes that the function itself starts. Returns 0, or the
/// status of an interrupted command. Throws the error of a rehearsal's part that failed.
int run_rehearsal(const TrainConfig& config, Console& console);
/// The next four functions, and `train` (trainer/train/train.h), are collective: each runs as one of several ranks. Only the first
/// rank prints. An error common to all ranks is thrown by the first rank only; the others return the error's exit status.
int run_generate(const GenerateConfig& config, Console& console, const Peers& peers);
int run_chat(const ChatConfig& config, Console& console, const Peers& peers);
int run_evaluate(const EvaluateConfig& config, Console& console, const Peers& peers);
int run_classify(const ClassifyConfig& config, Console& console, const Peers& peers);

int run_export(const ExportConfig& config, Console& console);
int run_import(const ImportConfig& config, Console& console);
int run_plan(const PlanConfig& config, Console& console);

int run_tokenize(const TokenizeConfig& config, Console& console);
int run_inspect(const InspectConfig& config, Console& console);
int run_status(const StatusConfig& config, Console& console);
int run_top(const TopConfig& config, Console& console);
int run_report(const ReportConfig& config, Console& console);
/// Returns 3 if a finding is red (an error), otherwise 0.
int run_doctor(const DoctorConfig& config, Console& console, const Host& host);
/// `clock` says how busy the machine is; without it the files of `host` do.
int run_bench(const BenchConfig& config, Console& console, const Host& host, CpuClock clock = {});
int run_schedule(const ScheduleConfig& config, Console& console);
int run_slurm(const SlurmConfig& config, Console& console);
/// Throws Error(numbers), which becomes exit status 7, if a result differs.
int run_selftest(const SelftestConfig& config, Console& console, const Host& host);

}  // namespace spillway::app
