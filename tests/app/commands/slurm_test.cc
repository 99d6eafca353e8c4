// Tests the slurm command, which prints a batch script: bash must accept it, and it must pass the flags to train unchanged.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/app/support_app.h"

namespace spillway::app::slurm_test {
namespace {

using Words = std::vector<std::string>;

Outcome slurm(const Words& more) {
  Words words = {"slurm", "--model", "gpt2-tiny", "--data", "$SLURM_TMPDIR/x.txt"};
  words.insert(words.end(), more.begin(), more.end());
  return run_app(words);
}

bool has(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

TEST(SlurmCommand, AsksForWhatWasGiven) {
  const Outcome outcome = slurm({"--nodes", "2", "--gpus", "4", "--time", "1-12:00:00", "--mem", "64GiB", "--account", "def-me",
                                 "--partition", "gpu", "--module", "openmpi/4.1", "--module", "cuda", "--threads", "6"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* piece : {"#!/bin/bash\n", "#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=4\n", "#SBATCH --gpus-per-node=4\n",
                            "#SBATCH --cpus-per-task=6\n", "#SBATCH --mem=65536M\n", "#SBATCH --time=36:00:00\n",
                            "#SBATCH --account=def-me\n", "#SBATCH --partition=gpu\n", "#SBATCH --signal=USR1@300\n", "#SBATCH --requeue\n",
                            "module load openmpi/4.1\n", "module load cuda\n", "scontrol requeue \"$SLURM_JOB_ID\""}) {
    EXPECT_TRUE(has(outcome.out, piece)) << piece << " in:\n" << outcome.out;
  }
  EXPECT_FALSE(has(outcome.out, "--ranks"));
  std::istringstream lines(outcome.out);
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(!line.starts_with("#SBATCH") || seen.insert(line.substr(0, line.find('='))).second) << "twice: " << line;
  }
}

TEST(SlurmCommand, HandsOnWhatSbatchTakes) {
  const Outcome outcome =
      slurm({"--gpus", "4", "--gpu-type", "h100", "--cpus-per-task", "12", "--threads", "8", "--output", "logs/%x-%j.out", "--sbatch",
             "--constraint=ib&a100", "--sbatch=--mail-type=END", "--sbatch", "-w node1", "--sbatch", "--account=abc"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* piece : {"#SBATCH --gpus-per-node=h100:4\n", "#SBATCH --cpus-per-task=12\n", "#SBATCH --output=logs/%x-%j.out\n",
                            "#SBATCH --constraint=ib&a100\n", "#SBATCH --mail-type=END\n", "#SBATCH -w node1\n", "#SBATCH --account=abc\n",
                            "srun --kill-on-bad-exit=0 --cpus-per-task=12 ", "--threads 8"})
    EXPECT_TRUE(has(outcome.out, piece)) << piece << " in:\n" << outcome.out;
  for (const char* own : {"--sbatch", "--gpu-type", "--output", "constraint"})
    EXPECT_FALSE(has(outcome.out.substr(outcome.out.find("\nsrun")), own)) << own << " is not train's";
}

TEST(SlurmCommand, RefusesWhatSbatchWouldNotTake) {
  const std::pair<Words, const char*> bad[] = {
      {{"--sbatch", "constraint=ib"}, "[--sbatch] expected an option of sbatch"},
      {{"--sbatch", "--"}, "[--sbatch] expected an option of sbatch"},
      {{"--sbatch", "-"}, "[--sbatch] expected an option of sbatch"},
      {{"--sbatch", "--x=1\n#SBATCH --uid=0"}, "[--sbatch] expected one line"},
      {{"--sbatch", "--account=abc", "--account", "def"}, "use --account"},
      {{"--sbatch", "-c 4"}, "use --cpus-per-task"},
      {{"--sbatch", "--nodes=4"}, "use --nodes"},
      {{"--sbatch", "--signal=TERM@10"}, "the script needs its own"},
      {{"--gpu-type", "h100"}, "[--gpu-type] expected --gpus"},
      {{"--gpus", "1", "--gpu-type", "h100:4"}, "[--gpu-type] expected the name of one kind"},
      {{"--gpus", "1", "--gpu-type", "a b"}, "[--gpu-type] expected a name"},
      {{"--output", "a b"}, "[--output] expected a file name"},
      {{"--cpus-per-task", "0"}, "[--cpus-per-task] expected"},
      {{"--cpus-per-task", "4", "--threads", "8"}, "[--threads] expected at most the 4 of --cpus-per-task, got 8"},
  };
  for (const auto& [words, why] : bad) {
    const Outcome outcome = slurm(words);
    EXPECT_EQ(outcome.status, 2) << words[1];
    EXPECT_TRUE(has(outcome.err, why)) << outcome.err;
  }
}

// If no flag gives the number of cores, a rank gets its share of the cores of the partition's nodes, as sinfo reports them.
TEST(SlurmCommand, GivesRanksTheirShareOfTheCores) {
  EXPECT_TRUE(has(slurm({"--ranks", "2"}).out, "Slurm decides how many cores")) << "without sinfo";
  TemporaryFolder folder;
  folder.write("sinfo", "#!/bin/sh\nprintf 'cpu* 64\\ngpu 48+\\ngpu 32\\n'\n");
  std::filesystem::permissions(folder.path() / "sinfo", std::filesystem::perms::owner_all);
  const std::string before = std::getenv("PATH");
  ::setenv("PATH", (folder.path().string() + ":" + before).c_str(), 1);
  EXPECT_TRUE(has(slurm({"--nodes", "2", "--gpus", "4", "--partition", "gpu"}).out, "#SBATCH --cpus-per-task=8\n"));
  EXPECT_TRUE(has(slurm({"--ranks", "3"}).out, "srun --kill-on-bad-exit=0 --cpus-per-task=21 ")) << slurm({"--ranks", "3"}).out;
  EXPECT_TRUE(has(slurm({"--partition", "unknown"}).out, "Slurm decides how many cores"));
  ::setenv("PATH", before.c_str(), 1);
}

// Runs the printed batch script with a fake srun that writes its arguments to a file, one a line. They must equal the flags given to slurm.
TEST(SlurmCommand, HandsTrainItsFlagsWordForWord) {
  TemporaryFolder folder;
  const std::string odd = "a b'c\"d$e`f\\g";
  const Outcome outcome = slurm({"--ranks", "2", "--nodes", "2", "--out", odd, "--nvme", "$SLURM_TMPDIR/x:2GiB", "--validation-data",
                                 "$SLURM_TMPDIR/v 1.txt", "--validation-data", "$SLURM_TMPDIR/v2.txt", "--decay-all", "--time", "10m"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(has(outcome.out, "#SBATCH --ntasks-per-node=1\n") && has(outcome.out, "#SBATCH --signal=USR1@200\n")) << outcome.out;
  const std::string script = folder.write("job.sh", outcome.out), seen = (folder.path() / "seen").string();
  folder.write("srun", "#!/bin/bash\nprintf '%s\\n' \"$@\" >" + seen + "\nexit 75\n");
  folder.write("scontrol", "#!/bin/bash\necho \"$@\" >>" + seen + "\n");
  const std::string run = "chmod +x " + folder.path().string() +
                          "/s* && SLURM_JOB_ID=17 SLURM_TMPDIR=/scratch PATH=" + folder.path().string() + ":$PATH bash " + script;
  EXPECT_EQ(WEXITSTATUS(std::system(run.c_str())), 75);
  const std::string got = *read_whole(seen);
  EXPECT_TRUE(has(got, "--kill-on-bad-exit=0\n"));
  EXPECT_TRUE(has(got, "\ntrain\n--data\n/scratch/x.txt\n--decay-all\n--model\ngpt2-tiny\n--nvme\n/scratch/x:2GiB\n--out\n" + odd +
                           "\n--validation-data\n/scratch/v 1.txt\n--validation-data\n/scratch/v2.txt\nrequeue 17\n"))
      << got;
}

TEST(SlurmCommand, RefusesWhatCannotBeAJob) {
  EXPECT_TRUE(has(slurm({"--nodes", "2", "--gpus", "4", "--ranks", "6"}).err, "[--ranks] expected 8, one for each GPU"));
  EXPECT_TRUE(has(slurm({"--nodes", "2", "--ranks", "3"}).err, "[--ranks] expected a multiple of --nodes 2, got 3"));
  EXPECT_TRUE(has(run_app({"slurm", "--model", "gpt2-tiny"}).err, "[--data] expected"));
  EXPECT_TRUE(has(run_app({"slurm", "--model", "gpt2-tiny", "--data", "no/such.txt"}).err, "[--data] expected no/such.txt"));
  EXPECT_TRUE(has(slurm({"--validation-data", "no/such.txt"}).err, "[--validation-data] expected no/such.txt"));
  EXPECT_TRUE(has(run_app({"slurm", "--model", "./no/such", "--data", "$SLURM_TMPDIR/x.txt"}).err, "[--model] expected ./no/such"));
  for (const char* flag : {"--account", "--partition"}) {
    for (const char* value : {"x\n#SBATCH --uid=0", "a b", "a;b", "\xff"}) {
      const Outcome outcome = slurm({flag, value});
      EXPECT_EQ(outcome.status, 2) << value;
      EXPECT_TRUE(has(outcome.err, std::string("[") + flag + "] expected a name")) << outcome.err;
    }
  }
  EXPECT_TRUE(has(slurm({"--learning-rat", "1"}).err, "learning-rate"));
  EXPECT_EQ(slurm({"--steps", "0"}).status, 2);
}

}  // namespace
}  // namespace spillway::app::slurm_test
