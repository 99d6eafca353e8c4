#include "tests/trainer/support_trainer.h"

namespace spillway::trainer {

FakeHost::FakeHost() {
  file("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:   12582912 kB\n");
  file("/proc/thread-self/status", "Name:\ttest\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n");
}

FakeHost& FakeHost::file(const std::string& name, const std::string& text) {
  root_.write(name.substr(1), text);
  return *this;
}

FakeHost& FakeHost::env(const std::string& name, const std::string& value) {
  env_[name] = value;
  return *this;
}

Host FakeHost::host() const {
  return {root_.path(), [env = env_](const char* name) -> std::optional<std::string> {
            const auto found = env.find(name);
            return found == env.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
          }};
}

Settings settings_of(Command command, const std::vector<std::string>& args, const std::string& config_file) {
  GivenMap given = parse_flags(command, args);
  if (!config_file.empty()) given = merge(command, given, read_config_file(command, config_file));
  Settings settings = make_settings(command, given);
  check_settings(settings, FakeHost().host());
  return settings;
}

TrainConfig train_config(std::vector<std::string> args) {
  args.insert(args.begin(), {"--model", "gpt2-tiny", "--data", "text.txt"});
  return std::get<TrainConfig>(settings_of(Command::train, args));
}

}  // namespace spillway::trainer
