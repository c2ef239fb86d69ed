/* Included before every C source: a library that is built here loads on glibc 2.17 too (manylinux2014).
 * What later releases of glibc gave a new version or a new name is asked for by the old one, which all of
 * them have. A symbol that a source does not use leaves no trace. tests/packaging/test_old_glibc.py looks at
 * what is built; what old releases have under no name (memfd_create, getrandom, stat) is a system call there.
 */
#pragma once

#define GF_SYMBOL(theirs, ours, version) __asm__(".symver " #theirs "," #ours "@GLIBC_" version)
#ifdef __x86_64__
#define GF_FIRST(name)           GF_SYMBOL(name, name, "2.2.5")
#define GF_SINCE(name, version)  GF_SYMBOL(name, name, version)
#define GF_RENAMED(theirs, ours) GF_SYMBOL(theirs, ours, "2.2.5")
#define GF_SCANF                 "2.7"
#else /* architectures that glibc knows since 2.17 */
#define GF_FIRST(name)           GF_SYMBOL(name, name, "2.17")
#define GF_SINCE(name, version)  GF_FIRST(name)
#define GF_RENAMED(theirs, ours) GF_SYMBOL(theirs, ours, "2.17")
#define GF_SCANF                 "2.17"
#endif

/* Moved into libc.so.6 by 2.34 and before. */
GF_FIRST(dladdr);
GF_FIRST(dlclose);
GF_FIRST(dlerror);
GF_FIRST(dlopen);
GF_FIRST(dlsym);
GF_FIRST(pthread_attr_setstacksize);
#ifndef GF_DEFINES_PTHREAD_CREATE
GF_FIRST(pthread_create);
#endif
GF_FIRST(pthread_detach);
GF_FIRST(pthread_getattr_np);
GF_FIRST(pthread_getspecific);
GF_FIRST(pthread_join);
GF_FIRST(pthread_key_create);
GF_FIRST(pthread_key_delete);
GF_FIRST(pthread_kill);
GF_FIRST(pthread_mutex_trylock);
GF_FIRST(pthread_mutexattr_init);
GF_FIRST(pthread_mutexattr_setpshared);
GF_FIRST(pthread_mutexattr_settype);
GF_FIRST(pthread_once);
GF_FIRST(pthread_rwlock_destroy);
GF_FIRST(pthread_rwlock_init);
GF_FIRST(pthread_rwlock_rdlock);
GF_FIRST(pthread_rwlock_unlock);
GF_FIRST(pthread_rwlock_wrlock);
GF_FIRST(pthread_setspecific);
#ifndef GF_DEFINES_PTHREAD_SIGMASK
GF_FIRST(pthread_sigmask);
#endif
GF_FIRST(sem_destroy);
GF_FIRST(sem_init);
GF_FIRST(sem_post);
GF_FIRST(sem_wait);
GF_FIRST(shm_open);
GF_SINCE(pthread_condattr_setclock, "2.3.3");
GF_SINCE(pthread_mutex_consistent, "2.12");
GF_SINCE(pthread_mutexattr_setrobust, "2.12");
GF_SINCE(pthread_setname_np, "2.12");

/* Names that the headers of later releases put in place of what a source says. */
GF_RENAMED(fcntl64, fcntl);
GF_RENAMED(__isoc23_strtol, strtol);
GF_RENAMED(__isoc23_strtoll, strtoll);
GF_RENAMED(__isoc23_strtoul, strtoul);
GF_RENAMED(__isoc23_strtoull, strtoull);
GF_SYMBOL(__isoc23_sscanf, __isoc99_sscanf, GF_SCANF);
