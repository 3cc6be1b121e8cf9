/* Compiler processes: a small supervisor over posix_spawn and poll.
 *
 * Each process leads a group of its own, so that a compiler driver dies together with the cc1, as and ld it
 * started. Standard output and error go to one pipe; after a kill its end tells that the whole group is gone.
 * The first failure stops the others: their work would be thrown away. A host program may ignore SIGCHLD or
 * collect our children itself; waitpid then says ECHILD, and the caller judges by the file produced. */
#include "rt/rt.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

Status rt_fail(RtError *e, Status code, const char *fmt, ...)
{
    if (!e)
        return code;
    e->code = code;
    e->launch = -1;
    e->site = e->value = e->limit = 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    return code;
}

/* The environment, with messages in the C locale and temporary files in tmp. One block: pointers, then the
 * strings made here. */
static char **proc_env(const char *tmp)
{
    size_t n = 0, room = tmp ? strlen(tmp) + 8 : 0;
    while (environ && environ[n])
        n++;
    char **env = block_alloc((n + 3) * sizeof *env + room);
    if (!env)
        return NULL;
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "LC_ALL=", 7) && !(tmp && !strncmp(environ[i], "TMPDIR=", 7)))
            env[m++] = environ[i];
    env[m++] = "LC_ALL=C";
    if (tmp) {
        char *s = (char *)(env + n + 3);
        snprintf(s, room, "TMPDIR=%s", tmp);
        env[m++] = s;
    }
    env[m] = NULL;
    return env;
}

/* Returns 0 or an errno. */
static int proc_start(Proc *p, char **env)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC))
        return errno;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    int err = posix_spawn_file_actions_init(&fa);
    if (err) {
        close(fd[0]), close(fd[1]);
        return err;
    }
    if ((err = posix_spawnattr_init(&at))) {
        posix_spawn_file_actions_destroy(&fa);
        close(fd[0]), close(fd[1]);
        return err;
    }
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    pid_t pid = 0;
    if (!(err = posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0)) &&
        !(err = posix_spawn_file_actions_adddup2(&fa, fd[1], 1)) &&
        !(err = posix_spawn_file_actions_adddup2(&fa, fd[1], 2)) &&
        !(err = posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                  POSIX_SPAWN_SETSIGDEF)) &&
        !(err = posix_spawnattr_setpgroup(&at, 0)) && !(err = posix_spawnattr_setsigmask(&at, &none)) &&
        !(err = posix_spawnattr_setsigdefault(&at, &all)))
        err = posix_spawn(&pid, p->argv[0], &fa, &at, (char *const *)p->argv, env);
    posix_spawnattr_destroy(&at);
    posix_spawn_file_actions_destroy(&fa);
    close(fd[1]);
    if (err) {
        close(fd[0]);
        return err;
    }
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    p->pid = (int)pid;
    p->fd = fd[0];
    p->start = time_now();
    return 0;
}

/* Takes what the pipe holds; closes it at its end. */
static void proc_drain(Proc *p)
{
    char spare[4096];
    while (p->fd >= 0) {
        size_t room = sizeof p->out - 1 - p->nout;
        ssize_t got = read(p->fd, room ? p->out + p->nout : spare, room ? room : sizeof spare);
        if (got > 0 && room) {
            p->nout += (size_t)got;
            p->out[p->nout] = 0;
        } else if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
            close(p->fd);
            p->fd = -1;
        } else if (got < 0 && errno == EAGAIN) {
            return;
        }
    }
}

/* True when the process has ended; status is set then. */
static bool proc_ended(Proc *p, int flags)
{
    int st;
    pid_t r;
    do
        r = waitpid(p->pid, &st, flags);
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return false;
    p->status = r < 0 ? 0 : WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    p->pid = 0;
    return true;
}

/* Kills the group and waits until all of it has let go of the pipe, so that nobody writes into the work
 * folder afterwards. */
static void proc_stop(Proc *p)
{
    if (p->pid) {
        kill(-p->pid, SIGKILL);
        proc_ended(p, 0);
        p->status = -1;
    }
    for (int i = 0; i < 50 && p->fd >= 0; i++) {
        struct pollfd f = { p->fd, POLLIN, 0 };
        poll(&f, 1, 10);
        proc_drain(p);
    }
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

bool thread_start(pthread_t *t, void *(*fn)(void *), void *arg)
{
    return pthread_create(t, NULL, fn, arg) == 0;
}

bool proc_cancelled(volatile int *cancel) { return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED); }

Status proc_run(Proc *p, int n, int jobs, double limit, const char *tmp, volatile int *cancel, RtError *e)
{
    Status st = E_OK;
    int next = 0, running = 0;
    for (int i = 0; i < n; i++) {
        p[i].fd = -1;
        p[i].pid = 0;
        p[i].status = -1;
        p[i].nout = 0;
        p[i].out[0] = 0;
    }
    char **env = proc_env(tmp);
    struct pollfd *fds = block_alloc((size_t)(n ? n : 1) * sizeof *fds);
    if (!env || !fds) {
        st = rt_fail(e, E_NOMEM, "no memory to start a compiler");
        goto done;
    }
    if (jobs < 1)
        jobs = 1;
    while (next < n || running) {
        while (next < n && running < jobs) {
            int err = proc_start(&p[next], env);
            if ((err == EAGAIN || err == ENOMEM || err == EMFILE || err == ENFILE) && running) {
                jobs = running; /* the machine allows no more: go on with what there is */
                break;
            }
            if (err) {
                st = rt_fail(e, E_COMPILE, "cannot start %s: %s", p[next].argv[0], strerror(err));
                goto done;
            }
            next++, running++;
        }
        int nf = 0, closing = 0;
        for (int i = 0; i < next; i++) {
            if (p[i].fd >= 0)
                fds[nf++] = (struct pollfd){ p[i].fd, POLLIN, 0 };
            else if (p[i].pid)
                closing++;
        }
        poll(fds, (nfds_t)nf, closing ? 1 : 20);
        double now = time_now();
        for (int i = 0; i < next; i++) {
            if (p[i].fd >= 0)
                proc_drain(&p[i]);
            if (p[i].pid && proc_ended(&p[i], WNOHANG)) {
                running--;
                proc_drain(&p[i]);
                if (p[i].fd >= 0) /* something it left behind holds the pipe (a compiler cache's server) */
                    close(p[i].fd);
                p[i].fd = -1;
                if (p[i].status) {
                    st = rt_fail(e, E_COMPILE, "%s failed with status %d", p[i].argv[0], p[i].status);
                    goto done;
                }
            }
            if (p[i].pid && now - p[i].start > limit) {
                st = rt_fail(e, E_TIMEOUT, "%s has not ended after %.0f s", p[i].argv[0], limit);
                goto done;
            }
        }
        if (proc_cancelled(cancel)) {
            st = rt_fail(e, E_CANCELLED, "stopped on request, while kernels were compiled");
            goto done;
        }
    }
done:
    for (int i = 0; i < next; i++)
        proc_stop(&p[i]);
    block_free(fds);
    block_free(env);
    return st;
}
