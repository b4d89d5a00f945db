"""What pyproject.toml cannot say: the wheel carries executables, so it is for one kind of machine, but for any Python."""

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class WithExecutables(Distribution):
    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", "linux_x86_64"


setup(distclass=WithExecutables, cmdclass={"bdist_wheel": Wheel})
