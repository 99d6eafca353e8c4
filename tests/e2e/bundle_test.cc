// Tests the archive of scripts/bundle.sh, unpacked where there is no shell, no loader and no library, only /proc, /sys and /dev.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/e2e/support_program.h"

namespace spillway::test::bundle_test {
namespace {

namespace fs = std::filesystem;

class SoakBundle : public testing::Test {
 protected:
  void SetUp() override {
    if (!succeeds("unshare " + user_ + " --mount true")) GTEST_SKIP() << "this user may not make a mount namespace";
    ASSERT_TRUE(
        succeeds("cd " SPILLWAY_SOURCE_DIR " && SPILLWAY_BUILD=" SPILLWAY_BINARY_DIR " scripts/bundle.sh " + place_.path().string()))
        << said();
    fs::create_directory(place_ / "root");
    ASSERT_TRUE(
        succeeds("tar -C " + (place_ / "root").string() + " --strip-components=1 -xzf " + place_.path().string() + "/spillway-*.tar.gz"));
    for (const char* folder : {"proc", "sys", "dev", "tmp"}) fs::create_directory(place_ / "root" / folder);
    place_.write_text("root/text.txt", 20000);
  }

  /// Runs the bundle's program in the new root, which contains no other program.
  bool inside(const std::string& arguments) {
    place_.write("jail.sh", "set -e\ncd '" + (place_ / "root").string() +
                                "'\nfor folder in proc sys dev; do mount --rbind /$folder $folder; done\n"
                                "exec chroot . /bin/spillway " +
                                arguments + "\n");
    return succeeds("unshare " + user_ + " --mount bash " + (place_ / "jail.sh").string());
  }
  bool succeeds(const std::string& command) const {
    return std::system(("( " + command + " ) >" + (place_ / "said").string() + " 2>&1").c_str()) == 0;
  }
  std::string said() const { return place_.read("said"); }

  Workplace place_;

 private:
  const std::string user_ = ::geteuid() == 0 ? "" : "--user --map-root-user";
};

const std::string kTraining =
    "train --model gpt2-tiny --from-scratch --tokenizer bytes --steps 3 --sequence-length 64 --device cpu --device-memory 100MiB "
    "--host-memory 100MiB --place-optimizer nvme --seed 5 ";

TEST_F(SoakBundle, RunsWhereThereIsNothingElse) {
  EXPECT_TRUE(mentions(place_.read("root/share/man/man1/spillway.1"), ".TH SPILLWAY 1"));
  EXPECT_TRUE(mentions(place_.read("root/share/bash-completion/completions/spillway"), "complete -o default -F _spillway spillway"));
  // Runs the test of Apptainer's recipe with the unpacked folder in place of the container's.
  EXPECT_TRUE(succeeds("sed -n '/^%test/,/^%help/{/^%/d;p}' " + (place_ / "root/share/spillway.def").string() + " | sed 's|/opt/spillway|" +
                       (place_ / "root").string() + "|g' | sh"))
      << said();
  EXPECT_TRUE(mentions(said(), "step 2")) << said();
  EXPECT_TRUE(inside("--version")) << said();
  EXPECT_TRUE(inside("doctor")) << said();
  EXPECT_TRUE(inside("plan --model gpt2-124m --device-memory 2GiB --host-memory 1GiB")) << said();
  EXPECT_TRUE(mentions(said(), "optimizer state")) << said();
  ASSERT_TRUE(inside(kTraining + "--data /text.txt --nvme /tmp/scratch --out /run")) << said();

  EXPECT_TRUE(inside(kTraining + "--data /text.txt --nvme /tmp/scratch --out /two --ranks 2")) << said();
  EXPECT_EQ(place_.metrics("root/two").size(), 3u);

  EXPECT_TRUE(inside("selftest")) << said();
  EXPECT_TRUE(mentions(said(), "zb-v")) << said();

  const Finished here = place_.spillway({"train",
                                         "--model",
                                         "gpt2-tiny",
                                         "--from-scratch",
                                         "--tokenizer",
                                         "bytes",
                                         "--steps",
                                         "3",
                                         "--sequence-length",
                                         "64",
                                         "--device",
                                         "cpu",
                                         "--device-memory",
                                         "100MiB",
                                         "--host-memory",
                                         "100MiB",
                                         "--seed",
                                         "5",
                                         "--data",
                                         "root/text.txt",
                                         "--out",
                                         "run"});
  ASSERT_EQ(here.status, 0) << here.err;
  EXPECT_EQ(numbers_of(place_.metrics("root/run")), numbers_of(place_.metrics("run")));
  EXPECT_EQ(place_.metrics("run").size(), 3u);
}

}  // namespace
}  // namespace spillway::test::bundle_test
