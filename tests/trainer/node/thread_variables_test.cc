// Tests what environment variables of OpenMP and Slurm say about threads: their values are parsed, contradictions are decided, and what is
// not used is named.
#include "trainer/node/thread_variables.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/trainer/support_trainer.h"
#include "trainer/node/cpu_lists.h"
#include "trainer/node/grant.h"

namespace spillway::trainer::thread_variables_test {
namespace {

using Cpus = std::vector<int>;
using Values = std::vector<std::pair<const char*, std::string>>;

// Returns use(host) for a machine with cores 0-7 and these environment variables.
template <class Use>
auto with(const Values& values, const Use& use) {
  FakeHost fake;
  for (const auto& [name, value] : values) fake.env(name, value);
  return use(fake.host());
}

const Cpus kAllowed = {0, 1, 2, 3, 4, 5, 6, 7};

ThreadVariables read(const Values& values, const Cpus& allowed = kAllowed) {
  return with(values, [&](const Host& host) { return thread_variables(host, allowed); });
}

// Returns the CPUs of a set, or {-1} for text that was not understood.
Cpus cpus_of(const std::optional<CpuSet>& set) {
  if (!set) return {-1};
  Cpus cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    if (set->test(static_cast<size_t>(cpu))) cpus.push_back(cpu);
  }
  return cpus;
}

const Cpus kNotUnderstood = {-1};

TEST(CpuLists, GompCpuAffinity) {
  // The fourth list is the example of libgomp's manual.
  const std::pair<const char*, Cpus> cases[] = {{"0", {0}},
                                                {"0-3", {0, 1, 2, 3}},
                                                {"0 2 4", {0, 2, 4}},
                                                {"0 3 1-2 4-15:2", {0, 1, 2, 3, 4, 6, 8, 10, 12, 14}},
                                                {" 1,3 ,\t5 ", {1, 3, 5}},
                                                {"2-2:7", {2}},
                                                {"1023", {1023}},
                                                {"", kNotUnderstood},
                                                {" ", kNotUnderstood},
                                                {"a", kNotUnderstood},
                                                {"0-", kNotUnderstood},
                                                {"3-1", kNotUnderstood},
                                                {"-1", kNotUnderstood},
                                                {"0--1", kNotUnderstood},
                                                {"0-3:0", kNotUnderstood},
                                                {"0:2", kNotUnderstood},
                                                {"0-3x", kNotUnderstood},
                                                {"1024", kNotUnderstood},
                                                {"99999999999999999999", kNotUnderstood}};
  for (const auto& [text, cpus] : cases) EXPECT_EQ(cpus_of(parse_cpu_affinity(text)), cpus) << text;
  EXPECT_FALSE(parse_cpu_affinity(std::string(4000, '1') + std::string(4000, ' ')));
}

TEST(CpuLists, OmpPlaces) {
  // The first three are the same places in the OpenMP specification.
  const Cpus first16 = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const std::pair<const char*, Cpus> cases[] = {{"{0,1,2,3},{4,5,6,7},{8,9,10,11},{12,13,14,15}", first16},
                                                {"{0:4},{4:4},{8:4},{12:4}", first16},
                                                {"{0:4}:4:4", first16},
                                                {"{0}", {0}},
                                                {"{0:4:2}", {0, 2, 4, 6}},
                                                {"{4:3:-1}", {2, 3, 4}},
                                                {"{0,5}:3", {0, 1, 2, 5, 6, 7}},
                                                {"{6}:3:-2", {2, 4, 6}},
                                                {"0,2,4", {0, 2, 4}},
                                                {"0:3:2", {0, 2, 4}},
                                                {"{1022:4}", {1022, 1023}},
                                                {"{1:4:-1}", {0, 1}},
                                                {"", kNotUnderstood},
                                                {"{}", kNotUnderstood},
                                                {"{0", kNotUnderstood},
                                                {"{0:}", kNotUnderstood},
                                                {"{0:0}", kNotUnderstood},
                                                {"{0:4},", kNotUnderstood},
                                                {"{0:4}x", kNotUnderstood},
                                                {"{0:4},!{1}", kNotUnderstood},
                                                {"0-3", kNotUnderstood},
                                                {"{99999999999}", kNotUnderstood},
                                                {"{0:1:1:1}", kNotUnderstood}};
  for (const auto& [text, cpus] : cases) EXPECT_EQ(cpus_of(parse_places(text)), cpus) << text;
}

TEST(CpuLists, AnyTextIsParsedInBoundedTime) {
  std::mt19937 random(7);
  constexpr std::string_view kCharacters = "0123456789{}:,-! ";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t n = random() % 24; n > 0; --n) text += kCharacters[random() % kCharacters.size()];
    parse_places(text);
    parse_cpu_affinity(text);
  }
  std::string most = "{0:1024:0}:1024:0";  // 4096 characters of the place that takes longest
  while (most.size() < 4000) most += ",{0:1024:0}:1024:0";
  EXPECT_EQ(cpus_of(parse_places(most)), Cpus{0});
}

TEST(ThreadVariables, Count) {
  const std::pair<const char*, std::optional<int>> cases[] = {
      {"4", 4},  {"4,2", 4}, {" 4 , 2", 4}, {"1", 1},     {"4096", 4096}, {"0", {}},   {"-1", {}},
      {"x", {}}, {"4x", {}}, {",4", {}},    {"4097", {}}, {"1e3", {}},    {"4.0", {}}, {"99999999999999999999", {}},
      {"  ", {}}};
  for (const auto& [text, count] : cases) {
    const ThreadVariables all = read({{"OMP_NUM_THREADS", text}});
    ASSERT_EQ(all.set.size(), 1u) << text;
    EXPECT_EQ(all.threads, count) << text;
    EXPECT_EQ(all.set[0].wrong, !count) << text;
    EXPECT_EQ(all.set[0].unused.empty(), count.has_value()) << text;
  }
  EXPECT_EQ(read({{"SLURM_CPUS_PER_TASK", "3"}}).slurm_cpus, 3);
  for (const char* wrong : {"0", "x", "3x", "-3"}) {
    const ThreadVariables all = read({{"SLURM_CPUS_PER_TASK", wrong}});
    EXPECT_EQ(all.slurm_cpus, std::nullopt) << wrong;
    EXPECT_TRUE(all.set.at(0).wrong) << wrong;
  }
}

// What a variable does to the run: it names CPUs, forbids pinning, is not used, or is not understood.
enum class Effect { cpus, unbound, unused, wrong };

TEST(ThreadVariables, Places) {
  struct Case {
    const char *name, *value;
    Effect effect;
    Cpus cpus;
  };
  const Case cases[] = {{"OMP_PLACES", "{0:4}", Effect::cpus, {0, 1, 2, 3}},
                        {"OMP_PLACES", " { 2 , 3 } ", Effect::cpus, {2, 3}},
                        {"OMP_PLACES", "{6:4}", Effect::cpus, {6, 7}},
                        {"OMP_PLACES", "cores", Effect::cpus, kAllowed},
                        {"OMP_PLACES", "Threads", Effect::cpus, kAllowed},
                        {"OMP_PLACES", "sockets", Effect::cpus, kAllowed},
                        {"OMP_PLACES", "threads(3)", Effect::cpus, {0, 1, 2}},
                        {"OMP_PLACES", "cores(3)", Effect::unused, {}},
                        {"OMP_PLACES", "{8:8}", Effect::unused, {}},
                        {"OMP_PLACES", "threads(", Effect::wrong, {}},
                        {"OMP_PLACES", "threads(0)", Effect::wrong, {}},
                        {"OMP_PLACES", "core", Effect::wrong, {}},
                        {"OMP_PROC_BIND", "false", Effect::unbound, {}},
                        {"OMP_PROC_BIND", "FALSE", Effect::unbound, {}},
                        {"OMP_PROC_BIND", "true", Effect::unused, {}},
                        {"OMP_PROC_BIND", "spread,close", Effect::unused, {}},
                        {"OMP_PROC_BIND", "yes", Effect::wrong, {}},
                        {"GOMP_CPU_AFFINITY", "0-3", Effect::cpus, {0, 1, 2, 3}},
                        {"GOMP_CPU_AFFINITY", "7-20", Effect::cpus, {7}},
                        {"GOMP_CPU_AFFINITY", "20", Effect::unused, {}},
                        {"GOMP_CPU_AFFINITY", "all", Effect::wrong, {}},
                        {"KMP_AFFINITY", "none", Effect::unbound, {}},
                        {"KMP_AFFINITY", "verbose,disabled", Effect::unbound, {}},
                        {"KMP_AFFINITY", "granularity=fine,compact,1,0", Effect::unused, {}},
                        {"KMP_AFFINITY", "granularity=fine,proclist=[3,0-1,{4,5}],explicit", Effect::cpus, {0, 1, 3, 4, 5}},
                        {"KMP_AFFINITY", "explicit,proclist=[x]", Effect::wrong, {}},
                        {"KMP_AFFINITY", "]proclist=[3", Effect::wrong, {}},
                        {"KMP_AFFINITY", "fast", Effect::wrong, {}},
                        {"SLURM_CPU_BIND", "quiet,mask_cpu:0x3", Effect::cpus, {}}};
  for (const Case& one : cases) {
    const ThreadVariables all = read({{one.name, one.value}});
    ASSERT_EQ(all.set.size(), 1u) << one.name;
    const std::string which = std::string(one.name) + "=" + one.value;
    EXPECT_EQ(all.cpus, one.cpus) << which;
    EXPECT_EQ(all.unbound, one.effect == Effect::unbound) << which;
    EXPECT_EQ(all.set[0].unused.empty(), one.effect == Effect::cpus || one.effect == Effect::unbound) << which << all.set[0].unused;
    EXPECT_EQ(all.set[0].wrong, one.effect == Effect::wrong) << which;
  }
}

TEST(ThreadVariables, FirstThatDecidesCounts) {
  const ThreadVariables lists = read({{"KMP_AFFINITY", "none"}, {"GOMP_CPU_AFFINITY", "0-3"}, {"OMP_PLACES", "{4:2}"}});
  EXPECT_EQ(lists.cpus, (Cpus{4, 5}));
  EXPECT_FALSE(lists.unbound);
  ASSERT_EQ(lists.set.size(), 3u);
  EXPECT_EQ(lists.set[0].unused, "");
  EXPECT_NE(lists.set[1].unused.find("OMP_PLACES"), std::string::npos) << lists.set[1].unused;
  EXPECT_NE(lists.set[2].unused.find("OMP_PLACES"), std::string::npos) << lists.set[2].unused;
  const ThreadVariables unbound = read({{"OMP_PROC_BIND", "false"}, {"GOMP_CPU_AFFINITY", "0-3"}});
  EXPECT_TRUE(unbound.unbound);
  EXPECT_EQ(unbound.cpus, Cpus());
  // A list of which this process may use no CPU decides nothing.
  EXPECT_EQ(read({{"OMP_PLACES", "{0:2}"}, {"GOMP_CPU_AFFINITY", "4 5"}}, {4, 5, 6}).cpus, (Cpus{4, 5}));
}

TEST(ThreadVariables, ValuesAreShownInPrintableCharacters) {
  const ThreadVariables all = read({{"OMP_PLACES", "a\033[31m\n"}, {"KMP_AFFINITY", std::string(5000, 'x')}});
  EXPECT_EQ(all.set.at(0).value, "a?[31m?");
  EXPECT_LT(all.set.at(1).value.size(), 70u);
}

// torchrun sets OMP_NUM_THREADS=1 for its ranks if it starts several on a node and its user set no value.
TEST(ThreadVariables, OneThreadOfTorchrunIsNotUsed) {
  const Values torchrun = {{"TORCHELASTIC_RUN_ID", "x"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}};
  const auto threads = [&](const char* local_ranks, const char* count) {
    Values all = torchrun;
    all.insert(all.end(), {{"LOCAL_WORLD_SIZE", local_ranks}, {"OMP_NUM_THREADS", count}});
    return read(all).threads;
  };
  EXPECT_EQ(threads("2", "1"), std::nullopt);
  EXPECT_EQ(threads("1", "1"), 1);
  EXPECT_EQ(threads("2", "3"), 3);
}

std::string line(const Values& values, const ThreadsInUse& in_use = {}) {
  return with(values, [&](const Host& host) { return threads_line(core_grant(host), in_use); });
}

TEST(CoreGrant, OmpNumThreadsLimitsThreadsAndListsLimitCores) {
  const auto grant = [](const Values& values, int sharers = 1) {
    return with(values, [&](const Host& host) { return core_grant(host, sharers, sharers); });
  };
  EXPECT_EQ(grant({}).threads, 8);
  EXPECT_EQ(grant({}).cpus, kAllowed);
  EXPECT_EQ(grant({{"OMP_NUM_THREADS", "3"}}).threads, 3);
  EXPECT_EQ(grant({{"OMP_NUM_THREADS", "3"}}).cores, 8);
  EXPECT_EQ(grant({{"OMP_NUM_THREADS", "30"}}).threads, 8);
  EXPECT_EQ(grant({{"OMP_NUM_THREADS", "3"}}, 4).threads, 2) << "a quarter of 8 cores";
  EXPECT_EQ(grant({{"OMP_NUM_THREADS", "3"}, {"SLURM_CPUS_PER_TASK", "2"}}).threads, 2);
  EXPECT_EQ(grant({{"GOMP_CPU_AFFINITY", "2-4"}}).threads, 3);
  EXPECT_EQ(grant({{"GOMP_CPU_AFFINITY", "2-4"}}).cpus, (Cpus{2, 3, 4}));
}

TEST(ThreadsLine, NamesEachVariable) {
  EXPECT_EQ(line({}, {.threads = 8}), "threads: 8 on CPUs 0-7");
  EXPECT_EQ(line({{"OMP_NUM_THREADS", "8"}}, {.threads = 8}), "threads: 8 on CPUs 0-7 (OMP_NUM_THREADS=8)");
  EXPECT_EQ(line({{"OMP_PLACES", "{1},{3:2}"}}, {.threads = 3, .ranks = 2}).substr(0, 52),
            "threads: 3 a rank, those of the first on CPUs 1,3-4 ");
  EXPECT_NE(line({{"OMP_NUM_THREADS", "1"}}, {.threads = 1}).find("--threads 8"), std::string::npos);
  const std::string flags = line({{"OMP_NUM_THREADS", "1"}, {"OMP_PROC_BIND", "false"}}, {.threads = 2, .by_flag = true, .bind = "cores"});
  EXPECT_NE(flags.find("OMP_NUM_THREADS=1 is not used: --threads is given"), std::string::npos) << flags;
  EXPECT_NE(flags.find("OMP_PROC_BIND=false is not used: --bind cores is given"), std::string::npos) << flags;
}

}  // namespace
}  // namespace spillway::trainer::thread_variables_test
