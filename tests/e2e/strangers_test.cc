// Tests the program against strangers on its network sockets. One pretends to be rank 0 to a rank that joins, and crowds connect to the
// sockets of both ranks, TCP and Unix, with truncated frames, wrong counts and proofs from an earlier run. The run continues with the
// numbers of an undisturbed one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "parallel/sockets/attendee.h"
#include "parallel/sockets/secret.h"
#include "tests/e2e/support_program.h"

namespace spillway::test::strangers_test {
namespace {

namespace fs = std::filesystem;
using namespace spillway::parallel;

const std::string kToken = "0123456789abcdef0123456789abcdef";

Deadline soon() { return deadline_in(1); }

// Returns the addresses at which a process listens.
std::vector<SocketAddress> doors_of(pid_t process) {
  std::set<std::string> inodes;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(process) + "/fd", none))
    inodes.insert(fs::read_symlink(entry.path(), none).string());
  const auto is_its = [&](const std::string& inode) { return inodes.contains("socket:[" + inode + "]"); };
  const auto words_of = [](const std::string& line) {
    std::istringstream words(line);
    return std::vector<std::string>{std::istream_iterator<std::string>(words), {}};
  };
  std::vector<SocketAddress> doors;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      const auto words = words_of(line);
      if (words.size() < 10 || words[3] != "0A" || !is_its(words[9])) continue;
      doors.push_back(SocketAddress::resolve("127.0.0.1", std::stoi(words[1].substr(words[1].rfind(':') + 1), nullptr, 16)).front());
    }
  }
  std::ifstream lines("/proc/net/unix");
  for (std::string line; std::getline(lines, line);) {
    const auto words = words_of(line);
    if (words.size() == 8 && words[3] == "00010000" && is_its(words[6])) doors.push_back(SocketAddress::abstract(words[7].substr(1)));
  }
  return doors;
}

Descriptor connect_to(const SocketAddress& door) {
  std::string why;
  return try_connect(door, soon(), why);
}

// Returns a proof of the token for words of another greeting: all that someone who listened to an earlier run could have.
std::string overheard(const char* by) { return Secret(kToken).proof_of({by, random_bits(), random_bits(), "word"}); }

Words introduction() { return Introduction{"build", 1, 2, {.host = "elsewhere", .node = "n", .near_name = "x"}}.to_words(); }

void be_strange(const Descriptor& one, size_t kind) {
  const std::string frames[] = {"", "GET / HTTP/1.1\r\n\r\n", std::string("SPILLWAY\x40\0\0\0half", 16), "SPILLWAY\xff\xff\xff\xff"};
  if (kind < 4) send_all(one, frames[kind].data(), frames[kind].size(), soon());
  if (kind == 4) send_words(one, {"link", "1", Secret(kToken).proof_of({"link", random_bits(), "1", "0"})}, soon());
  if (kind == 5) send_words(one, Roster{"s", std::vector<Attendee>(7)}.to_words(), soon());
  if (kind < 6) return;
  std::string why;
  Words words = introduction();
  words.push_back(overheard("guest"));
  if (!send_words(one, {"hello", "3", random_bits()}, soon()) || kind == 6) return;
  if (receive_words(one, deadline_in(0.1), why)) send_words(one, words, soon());
}

// Connects strangers to the listening sockets `doors` and returns their number. Some of them stay connected to the end.
int crowd(const std::vector<SocketAddress>& doors, int at_each, std::vector<Descriptor>& staying) {
  int came = 0;
  for (int k = 0; k < at_each; ++k) {
    for (const SocketAddress& door : doors) {
      Descriptor one = connect_to(door);
      if (!one) continue;
      be_strange(one, static_cast<size_t>(++came) % 8);
      if (came % 8 == 0) staying.push_back(std::move(one));
    }
  }
  return came;
}

// Listens at rank 0's address before rank 0 does, and answers in several ways that rank 0 never would.
void play_rank_0(int port) {
  int error = 0;
  const Descriptor listener = try_listen(SocketAddress::resolve("127.0.0.1", port).front(), error);
  ASSERT_TRUE(listener) << std::strerror(error);
  std::vector<Descriptor> one;
  one.emplace_back(fcntl(listener.get(), F_DUPFD_CLOEXEC, 3));
  Reception reception(std::move(one), 10);
  for (int kind = 0; kind < 5; ++kind) {
    const auto guest = reception.next(deadline_in(60));
    ASSERT_TRUE(guest);
    const Descriptor& socket = guest->socket;
    if (kind == 0) send_words(socket, {random_bits(), overheard("host")}, soon());
    if (kind == 1) send_words(socket, Roster{"s", std::vector<Attendee>(7)}.to_words(), soon());
    if (kind == 2) send_all(socket, "SPILLWAY\xff\xff\xff\xff", 12, soon());
    if (kind == 3) send_all(socket, "SPILLWAY\x40\0\0\0half", 16, soon());
    if (kind == 4) send_words(socket, {"x", ""}, soon());
  }
}

struct Strangers : testing::Test {
  Workplace at;
  const int port = 20000 + getpid() % 10000;
  Strangers() { at.write_text("text.txt", 20000); }
  Args run(const std::string& out) const {
    return small_run(out, 3, "64MiB", {"--zero-stage", "2", "--lr-schedule", "constant", "--timeout", "60s", "--quiet"});
  }
  // Starts rank 1, and rank 0 when the file "go" appears.
  void start_by_hand() {
    at.write("launch.sh", "export WORLD_SIZE=2 LOCAL_RANK=0 SPILLWAY_TOKEN=" + kToken +
                              "\nRANK=1 \"$@\" >one.txt 2>&1 &\necho $! >1.part; mv 1.part 1.pid\nwhile [ ! -e go ]; do sleep 0.01; done\n"
                              "RANK=0 \"$@\" &\necho $! >0.part; mv 0.part 0.pid\nwait $!; status=$?\nwait\nexit $status\n");
    at.start_by({"/bin/sh", "launch.sh"});
  }
  pid_t pid_of(int rank) const {
    const std::string name = std::to_string(rank) + ".pid";
    while (!fs::exists(at / name)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return std::stoi(at.read(name));
  }
  // Returns all listening addresses of a rank: TCP, Unix, and for rank 0 also the rendezvous address.
  std::vector<SocketAddress> doors_of_rank(int rank) const {
    std::vector<SocketAddress> doors;
    for (int tries = 0; tries < 2000 && doors.size() < (rank == 0 ? 3u : 2u); ++tries) {
      doors = doors_of(pid_of(rank));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return doors;
  }
};

TEST_F(Strangers, AtEveryDoorChangeNothing) {
  Args alone = run("alone"), crowded = run("crowded");
  alone.insert(alone.end(), {"--ranks", "2"});
  const Finished undisturbed = at.spillway(alone);
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;

  crowded.insert(crowded.end(), {"--rendezvous", "tcp:127.0.0.1:" + std::to_string(port)});
  start_by_hand();
  Finished disturbed;
  std::thread ranks([&] { disturbed = at.spillway(crowded); });
  const pid_t guest = pid_of(1);
  play_rank_0(port);
  std::vector<Descriptor> staying;
  std::vector<SocketAddress> doors = doors_of_rank(1);
  EXPECT_EQ(doors.size(), 2u);
  int came = crowd(doors, 100, staying);
  kill(guest, SIGSTOP);  // rank 1 stops, so that rank 0 goes on waiting for it
  at.write("go", "");
  const std::vector<SocketAddress> of_rank_0 = doors_of_rank(0);
  EXPECT_EQ(of_rank_0.size(), 3u);
  doors.insert(doors.end(), of_rank_0.begin(), of_rank_0.end());
  came += crowd(doors, 100, staying);
  kill(guest, SIGCONT);
  ranks.join();
  EXPECT_EQ(disturbed.status, 0) << disturbed.err << at.read("one.txt");
  EXPECT_GE(came, 600);
  EXPECT_EQ(numbers_of(at.metrics("crowded")), numbers_of(at.metrics("alone")));
  EXPECT_EQ(at.metrics("crowded").size(), 3u);
}

}  // namespace
}  // namespace spillway::test::strangers_test
