// Runs every command on paths that cannot be examined or are no regular files: private folders, names that are too long, circular symlinks,
// named pipes, devices, sockets. Each command must end with a documented exit status for a user's or a system's error. None may block.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/app/support_app.h"
#include "tests/support/fixtures.h"

namespace spillway::app::hostile_paths_test {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

// Lets a test run by root act as user nobody while the object lives, since root may read any folder. Files made before belong to root.
class AsNobody {
 public:
  AsNobody() : root_(::geteuid() == 0 && ::seteuid(kNobody) == 0) {}
  ~AsNobody() {
    if (root_) static_cast<void>(::seteuid(0));
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  const bool root_;
};

class HostilePaths : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    fs::permissions(folder_.path(), fs::perms::all);
    fs::create_directory(at("private"));
    for (const char* name : {"private/model", "private/run"}) fs::create_directory(at(name));
    fs::permissions(at("private"), fs::perms::owner_all);
    if (::geteuid() != 0) fs::permissions(at("private"), fs::perms::none);
    fs::create_symlink(at("b"), at("a"));
    fs::create_symlink(at("a"), at("b"));
    ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0666), 0);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    at("socket").copy(name.sun_path, sizeof name.sun_path - 1);
    ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    ::close(socket);
  }
  void TearDown() override { fs::permissions(at("private"), fs::perms::all); }

  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }

  // Returns the hostile path that the test's parameter names, such as a private folder or a name that is too long.
  std::string hostile(const std::string& ending = "") const {
    const std::string kind = GetParam();
    if (kind == "private") return at("private/model" + ending);
    if (kind == "long") return at(std::string(300, 'n') + ending);
    if (kind == "deep") return at(std::string(5000, '/') + "x" + ending);
    if (kind == "loop") return at("a");
    if (kind == "inloop") return at("a/model" + ending);
    if (kind == "device") return "/dev/zero";
    return at(kind);
  }

  TemporaryFolder folder_;
};

TEST_P(HostilePaths, AreToldInWordsByEveryCommand) {
  const std::string model = test::data("gpt2-tiny").string(), text = at("text.txt");
  std::ofstream(text) << std::string(2000, 'a');
  const std::string path = hostile(), rows = hostile(".jsonl"), tokens = hostile(".bin"), words = hostile(".txt");
  const std::vector<std::vector<std::string>> lines = {
      {"train", "--model", path, "--data", text, "--out", at("o1")},
      {"train", "--model", "gpt2-tiny", "--data", words, "--out", at("o2")},
      {"train", "--model", "gpt2-tiny", "--data", rows, "--out", at("o3")},
      {"train", "--model", "gpt2-tiny", "--data", tokens, "--out", at("o4")},
      {"train", "--model", "gpt2-tiny", "--data", text, "--out", path},
      {"train", "--model", "gpt2-tiny", "--data", text, "--out", at("o5"), "--nvme", path + ":64MiB", "--place-optimizer", "nvme"},
      {"train", "--model", "gpt2-tiny", "--data", text, "--out", at("o6"), "--resume", path},
      {"train", "--model", "gpt2-tiny", "--data", text, "--out", at("o7"), "--tokenizer", path},
      {"train", "--model", "gpt2-tiny", "--data", text, "--out", at("o8"), "--config", path},
      {"plan", "--model", path},
      {"plan", "--model", "gpt2-tiny", "--deepspeed", path},
      {"evaluate", "--model", path, "--data", text},
      {"evaluate", "--model", model, "--data", rows, "--tokenizer", "bytes"},
      {"generate", "--model", path, "--prompt", "a"},
      {"generate", "--model", model, "--tokenizer", path, "--prompt", "a"},
      {"classify", "--model", path, "--data", path},
      {"export", path, "--out", at("o9")},
      {"export", model, "--out", path + "/x"},
      {"import", path, "--out", at("o10")},
      {"tokenize", "--data", words, "--tokenizer", "bytes", "--out", at("o11.bin")},
      {"tokenize", "--data", text, "--tokenizer", "bytes", "--out", path + "/x.bin"},
      {"tokenize", "--data", text, "--train-vocab", "300", "--out", path + "/x"},
      {"tokenize", "--decode", tokens, "--tokenizer", "bytes"},
      {"inspect", path},
      {"inspect", rows},
      {"inspect", tokens},
      {"inspect", "--verify", path},
      {"status", path},
      {"top", path},
      {"report", path},
      {"report", path, "--out", path},
      {"schedule", "--pipeline-schedule", path + ".csv"},
  };
  const AsNobody nobody;
  for (const auto& line : lines) {
    const Outcome outcome = run_app(line);
    EXPECT_TRUE(outcome.status >= 2 && outcome.status <= 5) << outcome.status << ": " << testing::PrintToString(line) << "\n"
                                                            << outcome.err;
    EXPECT_EQ(outcome.err.find("[bug]"), std::string::npos) << outcome.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostilePaths, testing::Values("private", "long", "deep", "loop", "inloop", "pipe", "device", "socket"),
                         [](const auto& kind) { return kind.param; });

// Puts named pipes without a writer in the place of files in a folder. A command that opened one in blocking mode would wait forever.
TEST(HostilePathsInFolders, APipeIsNotWaitedFor) {
  const TemporaryFolder folder;
  const auto at = [&](const std::string& name) { return (folder.path() / name).string(); };
  for (const char* name : {"run", "model"}) fs::create_directory(at(name));
  for (const char* name : {"run/metrics.jsonl", "run/config.json", "run/plan.json", "run/timeline.json", "run/lock", "model/tokenizer.json",
                           "model/pipe", "model/tokenizer_config.json", "model/generation_config.json", "model/model.safetensors"})
    ASSERT_EQ(::mkfifo(at(name).c_str(), 0666), 0);
  fs::copy(test::data("gpt2-tiny") / "config.json", at("model"));
  for (const std::vector<std::string>& line : std::vector<std::vector<std::string>>{{"status", at("run")},
                                                                                    {"top", at("run")},
                                                                                    {"report", at("run")},
                                                                                    {"inspect", at("run")},
                                                                                    {"inspect", at("model")},
                                                                                    {"generate", "--model", at("model"), "--prompt", "a"},
                                                                                    {"export", at("model"), "--out", at("o")}}) {
    const Outcome outcome = run_app(line);
    EXPECT_TRUE(outcome.status != 1 && outcome.status <= 5) << outcome.status << ": " << testing::PrintToString(line) << "\n"
                                                            << outcome.err;
    EXPECT_EQ(outcome.err.find("[bug]"), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace spillway::app::hostile_paths_test
