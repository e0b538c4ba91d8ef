// SPDX-License-Identifier: Apache-2.0
//
// Two processes that use the stand-in for the CUDA driver, and exchange handles.
#pragma once

#include "unit/fake_cuda_fixture.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace xylem::fake_cuda::test {

class FakeCudaProcesses : public FakeCuda {
 protected:
  /// Runs `peer` in a child process, before this process has loaded the driver.
  template <typename Peer>
  void fork_peer(Peer peer) {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    peer_ = fork();
    ASSERT_GE(peer_, 0);
    socket_ = sockets[peer_ == 0 ? 1 : 0];
    close(sockets[peer_ == 0 ? 0 : 1]);
    if (peer_ != 0) return;
    peer();
    _exit(HasFailure() ? 1 : 0);
  }
  /// Sends a value to the other process.
  template <typename Value>
  void send(const Value& value) const {
    EXPECT_EQ(::send(socket_, &value, sizeof value, MSG_NOSIGNAL), ssize_t{sizeof value});
  }
  /// Receives a value from the other process. If that process ends, the socket closes and the test
  /// fails.
  template <typename Value>
  Value receive() const {
    Value value = {};
    EXPECT_EQ(recv(socket_, &value, sizeof value, MSG_WAITALL), ssize_t{sizeof value});
    return value;
  }
  void send_file(int file) const {
    Message message;
    const msghdr header = message.header();
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(control), &file, sizeof file);
    EXPECT_EQ(sendmsg(socket_, &header, MSG_NOSIGNAL), 1);
  }
  int receive_file() const {
    Message message;
    msghdr header = message.header();
    EXPECT_EQ(recvmsg(socket_, &header, MSG_CMSG_CLOEXEC), 1);
    int file = -1;
    const cmsghdr* control = CMSG_FIRSTHDR(&header);
    if (control != nullptr) std::memcpy(&file, CMSG_DATA(control), sizeof file);
    return file;
  }
  void expect_success_of_peer() {
    int status = -1;
    EXPECT_EQ(waitpid(peer_, &status, 0), peer_);
    EXPECT_EQ(status, 0);
    close(socket_);
  }

 private:
  struct Message {
    char byte = 0;
    iovec bytes = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header() {
      msghdr header = {};
      header.msg_iov = &bytes;
      header.msg_iovlen = 1;
      header.msg_control = control;
      header.msg_controllen = sizeof control;
      return header;
    }
  };

  int socket_ = -1;
  pid_t peer_ = -1;
};

}  // namespace xylem::fake_cuda::test
