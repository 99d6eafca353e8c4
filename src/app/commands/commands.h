// The commands' bodies: each takes its typed configuration and returns the exit status; failures are Errors, printed by run() (entry.h).
#pragma once
#include "app/events/callbacks.h"
#include "app/flags/config.h"
#include "app/node/console.h"
#include "app/node/host.h"
#include "app/ranks/peers.h"

namespace spillway::app {

constexpr int kInterrupted = 130;  // the status of a command that an interrupt ended, as shells say it

/// As one of several ranks: all of them call it. The first one alone speaks, and what all fail with it alone throws: the others return the
/// status.
int run_train(const TrainConfig& config, Console& console, const Peers& peers);
/// The same, heard by a program.
int run_train(const TrainConfig& config, Console& console, const Peers& peers, const TrainCallbacks& callbacks);
/// train --rehearse: starts what it needs itself. The status of what failed.
int run_rehearsal(const TrainConfig& config, Console& console);
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
/// 3 when anything is red.
int run_doctor(const DoctorConfig& config, Console& console, const Host& host);
int run_bench(const BenchConfig& config, Console& console, const Host& host);
int run_schedule(const ScheduleConfig& config, Console& console);
int run_slurm(const SlurmConfig& config, Console& console);
/// 7 where numbers differ.
int run_selftest(const SelftestConfig& config, Console& console, const Host& host);

}  // namespace spillway::app
