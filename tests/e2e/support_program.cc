#include "tests/e2e/support_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace spillway::test {

namespace fs = std::filesystem;

pid_t Workplace::start(const std::vector<std::string>& args) const {
  const pid_t pid = ::fork();
  if (pid != 0) return pid_ = pid;
  if (::chdir(path().c_str()) != 0) ::_exit(127);
  if (!cgroup_.empty()) {
    const int procs = ::open((cgroup_ / "cgroup.procs").c_str(), O_WRONLY);
    if (::write(procs, "0", 1) != 1) ::_exit(126);
    ::close(procs);
  }
  for (const auto& [name, descriptor] : {std::pair("stdout.txt", 1), std::pair("stderr.txt", 2)}) {
    const int file = ::open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(file, descriptor);
  }
  prepare_();
  std::vector<char*> argv;
  for (const std::string& word : launcher_) argv.push_back(const_cast<char*>(word.c_str()));
  const char* elsewhere = std::getenv("SPILLWAY_PROGRAM");  // set if the program under test comes from an unpacked bundle
  argv.push_back(const_cast<char*>(elsewhere ? elsewhere : SPILLWAY_PROGRAM));
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

Finished Workplace::wait(pid_t pid) const {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read("stdout.txt"), read("stderr.txt")};
}

Finished Workplace::spillway(const std::vector<std::string>& args) const { return wait(start(args)); }

Finished Workplace::spillway_until(const std::vector<std::string>& args, const std::function<bool()>& when, int signal) const {
  const pid_t pid = start(args);
  siginfo_t info{};
  while (!when()) {
    info.si_pid = 0;
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid) return wait(pid);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ::kill(pid, signal);
  return wait(pid);
}

void Workplace::write(const std::string& name, const std::string& text) const { std::ofstream(path() / name) << text; }

std::string Workplace::read(const std::string& name) const {
  std::ifstream in(path() / name, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void Workplace::write_text(const std::string& name, int bytes) const {
  const char* words[] = {"and ", "the ", "river ", "runs ", "over ", "stones, ", "under ", "light.\n", "of ", "a ", "long ", "day "};
  unsigned state = 12345;
  std::string text;
  while (static_cast<int>(text.size()) < bytes)
    text += words[(state = state * 1664525u + 1013904223u) >> 16 & 0xffffu ? (state >> 20) % 12 : 0];
  write(name, text);
}

std::vector<std::string> Workplace::metrics(const std::string& run) const {
  std::istringstream lines(read(run + "/metrics.jsonl"));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  return all;
}

std::vector<std::string> numbers_of(const std::vector<std::string>& metrics) {
  std::vector<std::string> numbers;
  for (const std::string& line : metrics) {
    const auto row = nlohmann::json::parse(line);
    numbers.push_back(row["step"].dump() + " " + row["loss"].dump() + " " + row["grad_norm"].dump() + " " + row["lr"].dump() + " " +
                      row["loss_scale"].dump() + (row.contains("validation_loss") ? " " + row["validation_loss"].dump() : ""));
  }
  return numbers;
}

Args small_run(const std::string& out, int steps, const std::string& device_memory, const Args& more) {
  Args args = {
      "train", "--model",         "llama-tiny",          "--data",          "text.txt", "--sequence-length",   "16",  "--micro-batch-size",
      "1",     "--steps",         std::to_string(steps), "--learning-rate", "1e-3",     "--gradient-clipping", "2.5", "--out",
      out,     "--device-memory", device_memory,         "--host-memory",   "64MiB",    "--threads",           "1"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Args with(Args args, const std::string& flag, const std::string& value) {
  const auto at = std::find(args.begin(), args.end(), flag);
  if (at == args.end()) {
    args.insert(args.end(), {flag, value});
  } else {
    *(at + 1) = value;
  }
  return args;
}

}  // namespace spillway::test
