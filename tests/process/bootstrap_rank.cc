// SPDX-License-Identifier: Apache-2.0
//
// A rank that only starts. It joins the job that its environment describes, gathers the number of
// every rank, and then prints the reports of the control plane until its standard input ends:
//
//   joined 1/3 by xylem over lo
//   gathered 0 1 2
//   lost 2: …
//   left 1
//   heard 5 from 0
//
//   bootstrap_rank [--starts N | --fork]
//
// With --starts, the program starts N times in sequence, and does not read standard input. With
// --fork, it starts once, and then forks a child that does nothing. A line "flood N" on standard
// input makes the rank flood N messages. After a line "stay", the rank continues when its standard
// input ends.
#include "bootstrap/control_plane.h"
#include "bootstrap/launcher.h"
#include "config.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>
#include <string>

namespace {

using namespace xylem;
using namespace xylem::runtime;

class Listener final : public ControlListener {
 public:
  void on_peer_lost(std::uint32_t rank, std::string_view how) override {
    std::printf("lost %u: %s\n", rank, std::string(how).c_str());
  }
  void on_peer_left(std::uint32_t rank) override { std::printf("left %u\n", rank); }
  void on_connected(PayloadConnection /*encounter*/) override {}
  void on_connection_failed(std::uint32_t /*rank*/, const Status& /*why*/) override {}
  void on_message(std::uint32_t origin, std::span<const std::byte>) override {
    std::printf("heard %u from %u\n", ++heard_[origin], origin);
  }

 private:
  std::map<std::uint32_t, unsigned> heard_;
};

struct Job {
  std::shared_ptr<Store> store;
  std::unique_ptr<ControlPlane> plane;
};

Result<Job> start(const Environment& environment) {
  XYLEM_TRY(const LoadedConfig loaded, load_config(environment, {}));
  XYLEM_TRY(const Placement placement, detect_placement(loaded.config, environment));
  const Deadline deadline = Deadline::after(loaded.config.start_timeout);
  Job job;
  XYLEM_TRY(job.store, open_store(placement, loaded.config, environment, nullptr, {}, deadline));
  XYLEM_TRY(job.plane, ControlPlane::join(placement, *job.store, loaded.config, {}, deadline));
  const std::string mine = std::to_string(placement.rank);
  XYLEM_TRY(const auto values, job.plane->all_gather(std::as_bytes(std::span(mine)), deadline));
  std::string all;
  for (const auto& value : values) {
    all += ' ';
    all.append(reinterpret_cast<const char*>(value.data()), value.size());
  }
  // Uses one write, so that the lines of ranks that share a stream are not mixed.
  std::printf("joined %u/%u by %s over %s\ngathered%s\n", placement.rank, placement.size,
              placement.launcher.c_str(), job.plane->interfaces().front().name.c_str(),
              all.c_str());
  std::fflush(stdout);
  return job;
}

/// Executes the commands on standard input. Returns false at end of file.
bool obey(ControlPlane& plane, std::string& unread, bool& stays) {
  std::array<char, 256> piece;
  const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
  if (got <= 0) return false;
  unread.append(piece.data(), static_cast<std::size_t>(got));
  for (auto end = unread.find('\n'); end != std::string::npos; end = unread.find('\n')) {
    const std::string line = unread.substr(0, end);
    unread.erase(0, end + 1);
    if (line == "stay") stays = true;
    const std::vector<std::byte> message(ControlPlane::kMaxMessage);
    for (int left = line.starts_with("flood ") ? std::stoi(line.substr(6)) : 0; left > 0; --left)
      plane.flood(message);
  }
  return true;
}

void listen(ControlPlane& plane) {
  Listener listener;
  std::string unread;
  bool stays = false;
  for (bool input_open = true;;) {
    const Deadline due = Deadline::at(plane.serve(listener));
    std::fflush(stdout);
    std::array<pollfd, 2> watched{
        {{plane.fd(), POLLIN, 0}, {input_open ? STDIN_FILENO : -1, POLLIN, 0}}};
    ::poll(watched.data(), watched.size(), due.left_ms());
    if (watched[1].revents != 0 && !obey(plane, unread, stays)) {
      if (!stays) return;
      input_open = false;
    }
  }
}

void fork_bystander() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  std::printf("child %d\n", child);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int starts = mode == "--starts" && argc > 2 ? std::stoi(argv[2]) : 1;
  const Environment environment = process_environment();
  for (int i = 0; i < starts; ++i) {
    auto job = start(environment);
    if (!job) {
      std::printf("failed %s\n", job.status().to_string().c_str());
      return 3;
    }
    if (mode == "--fork") fork_bystander();
    if (mode != "--starts") listen(*job->plane);
    job->plane->leave(Deadline::after(std::chrono::seconds(2)));
  }
  return 0;
}
